// Shows all runs, or those of one kind; and scrolls each picture to its crash. Without it, all runs are there.
const filters=document.querySelector('.filters'),runs=[...document.querySelectorAll('.run')];
filters.hidden=false;
for(const line of document.querySelectorAll('.partition .wide'))line.scrollLeft=line.dataset.at-line.clientWidth/2;
const show=which=>{for(const run of runs)run.hidden=which!=='all'&&!run.dataset.is.split(' ').includes(which);
for(const button of filters.children)button.setAttribute('aria-pressed',button.dataset.show===which)};
filters.addEventListener('click',event=>{
const button=event.target.closest('button');if(button)show(button.dataset.show)});
document.querySelector('.matrix').addEventListener('click',()=>show('all'));
