"""The style of the lab's page for light and dark, narrow screens and paper, and the script of its filter.

The page also works without the script.
"""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--bg:#f7f6f2;--panel:#fff;--ink:#1b2330;--muted:#586274;--line:#dcd9d0;--area:#eceae4;
--once:#1f7f74;--was:#79b5ac;--again:#b45f06;--never:#c0261c;--stale:#6c4bc4;--on:#fff;--kill:#c0261c;--resume:#1d63b8;
--polled:#8b96a8;--held:#dff0ea;--held-ink:#0e5a50;--allowed:#fbecd2;--allowed-ink:#7d4300;--broken:#fbdedb;
--broken-ink:#98180f;--unknown:#e4e4ee;--unknown-ink:#454a66}
@media (prefers-color-scheme:dark){:root{--bg:#11161d;--panel:#191f28;--ink:#e6e9ef;--muted:#9ba6b6;--line:#303947;
--area:#252d38;--once:#45b3a4;--was:#2c6f67;--again:#f0a03c;--never:#ff7468;--stale:#b29cff;--on:#11161d;--kill:#ff7468;
--resume:#74b2ff;--polled:#7d899b;--held:#143a35;--held-ink:#8fdccf;--allowed:#43300f;--allowed-ink:#f6c884;
--broken:#4a1d1a;--broken-ink:#ffb3ab;--unknown:#2d3040;--unknown-ink:#c3c8e2}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:12px}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1180px;margin:0 auto;padding:36px 24px 80px}
h1{font-size:34px;line-height:1.15;margin:0 0 10px;letter-spacing:-.02em;text-wrap:balance}
h2{font-size:21px;margin:44px 0 10px;letter-spacing:-.01em}
h3{font-size:17px;margin:0;line-height:1.35}
p{max-width:75ch;margin:0 0 10px}
.lead{font-size:18px;color:var(--muted)}
code,.mono{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.9em}
a{color:inherit}
:focus-visible{outline:2px solid var(--resume);outline-offset:2px}
.facts{display:flex;flex-wrap:wrap;gap:4px 28px;margin:18px 0 0;padding:12px 0;border-block:1px solid var(--line)}
.facts div{min-width:0}
.facts dt{font-size:12px;color:var(--muted)}
.facts dd{margin:0;overflow-wrap:anywhere}
.totals{display:flex;flex-wrap:wrap;gap:10px;margin:22px 0 0;padding:0;list-style:none}
.totals li{padding:10px 16px;border-radius:8px;min-width:120px}
.totals b{font-size:26px;display:block;line-height:1.1}
.held{background:var(--held);color:var(--held-ink)}
.allowed{background:var(--allowed);color:var(--allowed-ink)}
.broken{background:var(--broken);color:var(--broken-ink)}
.unknown{background:var(--unknown);color:var(--unknown-ink)}
.orders{display:grid;gap:10px;margin:14px 0}
.order{display:grid;grid-template-columns:150px 1fr;gap:4px 16px;align-items:center}
.order ol{display:flex;flex-wrap:wrap;gap:6px;margin:0;padding:0;list-style:none;align-items:center}
.order .step{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:3px 10px}
.order .at{color:var(--kill);font-size:13px;white-space:nowrap}
.bolt{display:inline-block;width:9px;height:13px;background:currentColor;margin-right:3px;vertical-align:-1px;
clip-path:polygon(70% 0,0 60%,42% 60%,25% 100%,100% 38%,56% 38%)}
.promise{color:var(--muted);font-size:13px;font-weight:400;line-height:1.35;display:block}
table{border-collapse:separate;border-spacing:4px}
.matrix{width:100%;table-layout:fixed;margin:8px -4px}
.matrix th{font-weight:600;text-align:left;font-size:14px;vertical-align:bottom;padding:4px;overflow-wrap:anywhere}
.matrix tbody th{vertical-align:middle}
.matrix col.name{width:200px}
.matrix td{padding:0;vertical-align:stretch;height:64px}
.cell{display:block;height:100%;min-height:64px;border-radius:7px;padding:7px 9px;text-decoration:none;font-size:14px;
line-height:1.3}
.cell:hover{text-decoration:underline}
.cell.broken{box-shadow:inset 0 0 0 2px currentColor}
.cell+.cell{margin-top:4px}
.cell span{display:block}
.cell .small{font-size:12px}
.none{color:var(--muted);text-align:center;display:block}
.sign{display:inline-block;width:16px;height:16px;margin-right:5px;vertical-align:-3px}
.sign path{fill:none;stroke:currentColor;stroke-width:2;stroke-linecap:round;stroke-linejoin:round}
.points{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(330px,100%),1fr));gap:6px 28px;margin:12px 0}
.points div{min-width:0}
.points dt{font-weight:600}
.points dd{margin:0;color:var(--muted);font-size:15px}
.legend{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(310px,100%),1fr));gap:6px 20px;list-style:none;
margin:12px 0;padding:0;font-size:14px}
.legend li{display:flex;gap:9px;align-items:center}
.legend svg{flex:none}
.filters{display:flex;flex-wrap:wrap;gap:8px;margin:14px 0}
.filters[hidden]{display:none}
button{font:inherit;font-size:14px;color:inherit;background:var(--panel);border:1px solid var(--line);
border-radius:999px;padding:5px 14px;cursor:pointer}
button[aria-pressed=true]{background:var(--ink);color:var(--bg);border-color:var(--ink)}
.run{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin:14px 0}
.run[hidden]{display:none}
.run:target{border-color:var(--resume);box-shadow:0 0 0 2px var(--resume)}
.head{display:flex;flex-wrap:wrap;gap:6px 14px;align-items:center;margin-bottom:8px}
.badge{border-radius:999px;padding:3px 12px 3px 8px;font-size:14px;font-weight:600}
.head .promise{display:inline}
.reason{font-weight:600;overflow-wrap:anywhere}
.pictures{display:flex;flex-wrap:wrap;gap:4px 24px}
.partition{display:flex;margin:14px 0 0;max-width:100%}
.partition svg{display:block;flex:none}
.scroll{overflow-x:auto;flex:1;min-width:0;padding-bottom:3px}
svg text{font:11px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--muted)}
svg text.strong{fill:var(--ink);font-weight:600}
svg text.tick{font-size:10px}
svg text.lane{font-size:10.5px}
svg text.times{fill:var(--on);text-anchor:middle;font-weight:700}
svg text.kill{fill:var(--kill);font-weight:600}
svg text.resume{fill:var(--resume);font-weight:600}
path.tick,.rule{stroke:var(--line)}
rect.once{fill:var(--once)}
rect.was{fill:var(--was)}
rect.area{fill:var(--area)}
rect.again{fill:var(--again)}
rect.odd{fill:var(--never)}
rect.never{fill:var(--panel);stroke:var(--never);stroke-width:1.5}
path.cross{stroke:var(--never);stroke-width:1.5}
rect.stale{fill:var(--panel);stroke:var(--stale);stroke-width:1.5}
path.stale{fill:var(--stale)}
path.edge{stroke:var(--panel);stroke-width:1.5}
rect.hidden{fill:var(--panel);stroke:var(--never);stroke-width:1.3;stroke-dasharray:3 2}
rect.waiting{fill:var(--panel);stroke:var(--polled)}
circle.repeat{fill:var(--on);stroke:var(--again);stroke-width:1.5}
.bar.polled{fill:var(--polled)}
.bar.wrote{fill:var(--once)}
.bar.unfinished{fill:none;stroke:var(--never);stroke-dasharray:3 2}
.bar.offsets{fill:var(--resume)}
path.kill.line{stroke:var(--kill);stroke-width:2}
path.resume.line{stroke:var(--resume);stroke-width:2}
path.kill.shape{fill:var(--kill)}
path.resume.shape{fill:var(--resume)}
details{margin-top:14px;font-size:14px}
summary{cursor:pointer;color:var(--muted)}
details .scroll{max-height:340px;overflow:auto;margin-top:8px}
details table{border-collapse:collapse;font-size:13px}
details th,details td{text-align:left;padding:3px 14px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}
.back{font-size:13px;color:var(--muted);margin-left:auto}
@media (max-width:760px){main{padding:22px 14px 60px}h1{font-size:27px}.run{padding:14px}
.order{grid-template-columns:1fr}.matrix,.matrix tbody,.matrix tr,.matrix td,.matrix tbody th{display:block;
width:auto}
.matrix thead{display:none}.matrix tr{margin:0 0 20px}.matrix td{height:auto;margin:4px 0;display:grid;
grid-template-columns:130px minmax(0,1fr);align-items:center;gap:8px}.matrix td::before{content:attr(data-point);
font-size:13px;color:var(--muted)}.cell{min-height:0}.cell span{display:inline}.none{text-align:left}}
@media print{:root{color-scheme:light}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}main{max-width:none;
padding:0}.filters,.back,details:not([open]){display:none}.run,.matrix tr,.partition{break-inside:avoid}
.partition{zoom:.62}.scroll{overflow:visible}body{font-size:13px;background:none}}
"""

SCRIPT = """
const filters=document.querySelector('.filters'),runs=[...document.querySelectorAll('.run')];
filters.hidden=false;
for(const line of document.querySelectorAll('.partition .scroll'))line.scrollLeft=line.dataset.at-line.clientWidth/2;
const show=which=>{for(const run of runs)run.hidden=which!=='all'&&!run.dataset.is.split(' ').includes(which);
for(const button of filters.children)button.setAttribute('aria-pressed',button.dataset.show===which)};
filters.addEventListener('click',event=>{
const button=event.target.closest('button');if(button)show(button.dataset.show)});
document.querySelector('.matrix').addEventListener('click',()=>show('all'));
"""
