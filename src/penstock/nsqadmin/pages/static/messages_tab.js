if (!window.penstockTab) {
  window.penstockTab = true;
  document.addEventListener('visibilitychange', () => emitEvent('message-tab', document.hidden));
}
