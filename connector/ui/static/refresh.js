// Puts the newest parts in place of the shown ones. What has the focus, and what is open, stays so; a part that says the
// same is left alone, so that a screen reader tells changes only. Without it the page loads itself anew.
const SECONDS = 10;
const refresh = async () => {
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.title = next.title;
    document.body.classList.remove("unreachable");
    for (const part of document.querySelectorAll("[data-live]")) {
      const newer = next.querySelector(`[data-live="${part.dataset.live}"]`);
      if (!newer || newer.innerHTML === part.innerHTML || part.contains(document.activeElement)) continue;
      for (const open of part.querySelectorAll("details[open]")) {
        const same = newer.querySelector(`#${CSS.escape(open.id)}`);
        if (same) same.open = true;
      }
      part.className = newer.className;
      part.replaceChildren(...newer.childNodes);
    }
  } catch {
    document.title = "not reachable - Lakelock";
    document.body.classList.add("unreachable");
  }
};
setInterval(refresh, SECONDS * 1000);
