// What single pages do in the browser.
window.penstock = {
  // Copies what the browser already shows. Without the clipboard (no https) it is selected, too.
  async copy(emit) {
    const shown = document.querySelector('.shown-body');
    if (navigator.clipboard) await navigator.clipboard.writeText(shown.textContent);
    else { getSelection().selectAllChildren(shown); document.execCommand('copy'); }
    emit();
  },
  // The message of the cell that has the focus is the one that is open; keys may run over many.
  focused(p) {
    const row = p.api.getDisplayedRowAtIndex(p.rowIndex);
    clearTimeout(this.opening);
    if (row) this.opening = setTimeout(() => emitEvent('message-open', row.data.at), 120);
  },
  watchTab() {
    if (this.tab) return;
    this.tab = () => emitEvent('message-tab', document.hidden);
    document.addEventListener('visibilitychange', this.tab);
  },
  put(field, change) {
    change();
    field.dispatchEvent(new Event('input', {bubbles: true}));
  },
  // A chosen file is read by the browser, into the field: nothing else is sent anywhere.
  async readFile(e) {
    const file = e.target.files[0], field = document.querySelector('.definitions textarea');
    if (!file) return;
    let text = await file.text();
    if (JSON.stringify(text).length > 990000)  // NiceGUI sends no message above 1,000,000
      text = 'This is too long for a page: penstock definitions import FILE';
    this.put(field, () => { field.value = text; });
    e.target.value = '';
  },
  statement: () => document.querySelector('.statement textarea'),
  insert(e) {
    const field = this.statement(), name = e.currentTarget.dataset.name;
    this.put(field, () => field.setRangeText(name, field.selectionStart, field.selectionEnd, 'end'));
    field.focus();
  },
  // This browser's statements, the last first; a browser that keeps nothing has none.
  recent() {
    try {
      const found = JSON.parse(localStorage.getItem('penstock.sql') || '[]');
      return found.filter((one) => typeof one === 'string').slice(0, 20);
    } catch { return []; }
  },
  remember() {
    const text = this.statement().value.trim(), others = this.recent().filter((one) => one !== text);
    try { localStorage.setItem('penstock.sql', JSON.stringify([text, ...others].slice(0, 20))); }
    catch { /* a browser that keeps nothing */ }
  },
  forget() { try { localStorage.removeItem('penstock.sql'); } catch { /* it has none */ } },
};
