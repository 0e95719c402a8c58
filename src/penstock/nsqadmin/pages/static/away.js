(() => {
// While a page has no connection what is pressed does nothing, so buttons are off and say so; and
// what was pressed while a connection died is said not to have been answered.
const ANSWER_MS = 5000, PRESS_MS = 300, FIRST_MS = 3000;
const PRESSED = 'button:not(.opener):not(.find):not(.q-field button), .q-toggle, .q-checkbox';
const off = new Set(), open = new Set(), begun = Date.now();
let box, socket, was, pressed = 0;
const away = () => !(window.did_handshake && window.socket?.connected);
function say(text) {
  if (!box && !text) return;
  if (!box) {
    box = document.createElement('div');
    box.className = 'away';
    box.setAttribute('role', 'alert');
    document.body.append(box);
  }
  box.hidden = !text;
  if (box.textContent !== text) box.textContent = text;
}
function tell() {
  const now = Date.now(), lost = [...open].find((one) => one.lost || now - one.at > ANSWER_MS);
  const doubt = lost ? 'What you pressed at ' + new Date(lost.at).toLocaleTimeString()
    + ' was not answered: see whether it was done, and press again if not.' : '';
  const gone = was && (socket || now - begun > FIRST_MS)
    ? 'No connection to nsqadmin: buttons are off until it is back.' : '';
  say([gone, doubt].filter(Boolean).join(' '));
}
function turn(one, isOff) {
  one.classList.toggle('off', isOff);
  if (isOff) one.setAttribute('aria-disabled', 'true'); else one.removeAttribute('aria-disabled');
  if (one.tagName === 'BUTTON') one.disabled = isOff;
}
function watch(found) {
  socket = found;
  const emit = found.emit.bind(found);
  found.emit = (name, ...told) => {
    if (name !== 'event' || told.length > 1 || Date.now() - pressed > PRESS_MS) return emit(name, ...told);
    const one = {at: pressed};
    open.add(one);
    return emit(name, ...told, () => { open.delete(one); tell(); });
  };
  found.on('disconnect', () => { open.forEach((one) => { one.lost = true; }); look(); });
}
function look() {
  if (!socket && window.socket) watch(window.socket);
  was = away();
  for (const one of was ? document.querySelectorAll(PRESSED) : [])
    if (!off.has(one) && !one.disabled) { off.add(one); turn(one, true); }
  if (!was) { off.forEach((one) => turn(one, false)); off.clear(); }
  tell();
}
for (const kind of ['click', 'keydown'])
  addEventListener(kind, (event) => {
    const one = event.target.closest?.(PRESSED);
    if (!one || kind === 'keydown' && event.key !== 'Enter' && event.key !== ' ') return;
    // A double click is one: the second would take the first back, or do it once more.
    if (away() || event.detail > 1) { event.preventDefault(); event.stopImmediatePropagation(); look(); return; }
    open.forEach((old) => { if (old.lost || Date.now() - old.at > ANSWER_MS) open.delete(old); });
    pressed = Date.now();
  }, true);
setInterval(look, 200);
})();
