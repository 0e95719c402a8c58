// A session lives as long as somebody uses a page. Only what a person does counts: `isTrusted` is
// false for events that scripts make. The answer brings the cookie with its new end.
(() => {
  const {way, every} = window.penstockSession;
  let last = 0;
  const renew = (event) => {
    if (!event.isTrusted || Date.now() - last < every) return;
    last = Date.now();
    fetch(way, {method: 'POST', keepalive: true}).catch(() => { last = 0; });  // the next one tries
  };
  for (const kind of ['pointerdown', 'keydown', 'wheel'])
    addEventListener(kind, renew, {capture: true, passive: true});
})();
