(() => {
// NiceGUI would put the base path in front of links once more: ours have it.
Object.defineProperty(window, 'path_prefix', {get: () => '', set: () => {}});
const opened = () => [...document.querySelectorAll('.opener[aria-expanded=true]')];
const set = (button, open) => button.setAttribute('aria-expanded', String(open));
addEventListener('click', (event) => {
  const button = event.target.closest?.('.opener');
  for (const one of opened())
    if (one !== button && !one.parentElement.contains(event.target)) set(one, false);
  if (button) set(button, button.getAttribute('aria-expanded') !== 'true');
  if (event.target.closest?.('.find')) openFinder();
});
addEventListener('focusout', (event) => {
  if (!event.relatedTarget) return;
  for (const one of opened())
    if (!one.parentElement.contains(event.relatedTarget)) set(one, false);
});
addEventListener('keydown', (event) => {
  if (event.key === 'Escape')
    for (const one of opened().slice(-1)) { set(one, false); one.focus(); }
  const typing = event.target.closest?.('input, textarea, select, [contenteditable=true]');
  const wanted = event.key === 'k' && (event.ctrlKey || event.metaKey)
    || event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey;
  if (!wanted || document.querySelector('.q-dialog, .finder[open]')) return;
  if (!document.querySelector('.find')) return;
  event.preventDefault();
  openFinder();
});
let finder, input, list, rows = [], at = 0, answered = '', going = false, moved = false;
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
function openFinder() {
  if (!finder) {
    finder = make('dialog', {className: 'finder', ariaLabel: 'Quick open'});
    input = make('input', {type: 'text', autocomplete: 'off', spellcheck: false, role: 'combobox',
      ariaLabel: 'Topic, channel, node, page or message id', ariaExpanded: 'true',
      placeholder: 'Topic, channel, node, page or message id'});
    input.setAttribute('aria-controls', 'found');
    list = make('ul', {id: 'found', role: 'listbox', ariaLabel: 'Found'});
    finder.append(input, list, make('p', {className: 'soft',
      textContent: 'Arrow keys choose, Enter opens, Escape closes.'}));
    document.body.append(finder);
    input.addEventListener('input', ask);
    input.addEventListener('keydown', onKey);
    finder.addEventListener('click', (event) => { if (event.target === finder) finder.close(); });
  }
  if (finder.open) return;
  input.value = ''; rows = []; going = false;
  draw(); finder.showModal(); input.focus(); ask();
}
function ask() {
  going = moved = false;
  if (!window.did_handshake) { setTimeout(ask, 100); return; }
  emitEvent('penstock_find', input.value);
}
function onKey(event) {
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (step && rows.length) {
    event.preventDefault(); at = (at + step + rows.length) % rows.length;
    moved = true; draw();
  } else if (event.key === 'Enter') {
    event.preventDefault(); going = true; go();
  }
}
function go() {
  if (going && answered === input.value && rows[at]) location.href = rows[at].href;
}
function draw() {
  list.replaceChildren(...rows.map((row, number) => {
    const one = make('li', {id: 'found-' + number, role: 'option',
      ariaSelected: String(number === at)});
    one.append(make('span', {textContent: row.words}),
               make('span', {className: 'soft', textContent: row.kind}));
    one.addEventListener('click', () => { location.href = row.href; });
    return one;
  }));
  if (!rows.length && answered === input.value && input.value)
    list.append(make('li', {role: 'option', ariaDisabled: 'true', className: 'soft',
      textContent: 'Nothing has this in its name.'}));
  if (rows[at]) input.setAttribute('aria-activedescendant', 'found-' + at);
  else input.removeAttribute('aria-activedescendant');
  list.children[at]?.scrollIntoView({block: 'nearest'});
}
window.penstockFound = (text, found) => {
  if (!input || text !== input.value) return;
  const chosen = moved && rows[at]?.href;  // an answer that comes late moves nothing
  rows = found; at = Math.max(0, rows.findIndex((row) => row.href === chosen)); answered = text; draw(); go();
};
})();
