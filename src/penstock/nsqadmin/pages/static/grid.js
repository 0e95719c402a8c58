// A curve from digits in base 36, one for each point.
customElements.define('penstock-curve', class extends HTMLElement {
  static observedAttributes = ['of'];
  attributeChangedCallback(name, before, digits) {
    const values = [...digits || ''].map((one) => parseInt(one, 36)), last = values.length - 1;
    const points = values.map((one, at) => 100 * at / last + ',' + (23 - 0.6 * one)).join(' ');
    this.innerHTML = last < 1 ? '' : `<svg viewBox="0 0 100 24" preserveAspectRatio="none"
      aria-hidden="true"><polygon points="0,24 ${points} 100,24"/><polyline points="${points}"/></svg>`;
  }
});
// How the tables show their values: what a column names as its kind.
window.penstockGrid = (() => {
const number = (show) => (p) => p.value == null ? '' : show(p.value);
const count = (value) => Math.round(value).toLocaleString('en');
const span = (value) => value < 60 ? value + ' s'
  : value < 3600 ? Math.floor(value / 60) + ' min ' + value % 60 + ' s'
  : Math.floor(value / 3600) + ' h ' + Math.floor(value % 3600 / 60) + ' min';
const past = (value) => (value < 1 ? Math.round(value * 1000) + ' ms' : span(Math.round(value)))
  + ' ago';
// In its largest unit, for a column that has little room.
const age = (value) => value < 1 ? '' : value < 60 ? value + ' s'
  : value < 3600 ? Math.floor(value / 60) + ' min'
  : value < 172800 ? (value / 3600).toFixed(1) + ' h' : (value / 86400).toFixed(1) + ' d';
const rate = (value) => (value >= 10 || value == 0 ? count(value) : value.toFixed(1)) + '/s';
const percent = (value) => value ? value + ' %' : '';
const bytes = (value) => value < 1000 ? value + ' B' : value < 1e6 ? (value / 1e3).toFixed(1) + ' KB'
  : value < 1e9 ? (value / 1e6).toFixed(1) + ' MB' : (value / 1e9).toFixed(2) + ' GB';
const ago = (p) => {
  if (!p.value) return '';
  const s = Math.max(0, Math.round(Date.now() / 1000 - p.value));
  const [n, unit] = s < 60 ? [s, 's'] : s < 3600 ? [s / 60, 'min']
    : s < 172800 ? [s / 3600, 'h'] : [s / 86400, 'd'];
  return Math.floor(n) + ' ' + unit + ' ago';
};
const moment = (p) => p.value
  ? new Date(p.value * 1000).toISOString().slice(0, 19).replace('T', ' ') + ' UTC' : '';
const made = (tag, of) => Object.assign(document.createElement(tag), of);
// What a row has beside the value of a column, under the column's name and this word.
const beside = (p, word) => p.data[p.colDef.field + '_' + word];
const link = (p) => p.value ? made('a', {href: beside(p, 'link'), textContent: p.value}) : '';
const state = (p) => {
  const level = beside(p, 'level') || 'soft';
  if (!p.value || level === 'plain') return p.value || '';
  return made('span', {className: 'badge ' + level, textContent: p.value});
};
const share = (p) => {
  if (p.value == null) return '';
  const box = made('div', {className: 'share'}), bar = made('progress', {max: 100, value: p.value});
  if (p.value > p.colDef.context?.full) bar.className = 'full';
  bar.setAttribute('aria-label', p.colDef.headerName);
  box.append(bar, made('span', {textContent: beside(p, 'words') ?? Math.floor(p.value) + ' %'}));
  return box;
};
const curve = (p) => {
  const one = made('penstock-curve', {className: 'curve'});
  one.setAttribute('of', p.value || '');
  return one;
};
// The keyboard's focus is on a cell, and Enter there means its link.
const follow = (p) => { if (p.event.key === 'Enter') p.event.target.querySelector('a')?.click(); };
// Columns that have no room go; those that stay share what there is.
const fit = (p) => {
  if (!p.clientWidth) return;
  const show = [], hide = [];
  for (const one of p.api.getColumns()) {
    const from = one.getColDef().context?.from;
    if (from && one.isVisible() !== p.clientWidth >= from)
      (one.isVisible() ? hide : show).push(one);
  }
  if (show.length) p.api.setColumnsVisible(show, true);
  if (hide.length) p.api.setColumnsVisible(hide, false);
};
// What says how long ago something was has to be drawn again and again.
const tick = (p) => {
  const ticking = p.api.getColumns().filter((one) => one.getColDef().context?.ticks);
  if (!ticking.length) return;
  const timer = setInterval(() => {
    if (p.api.isDestroyed()) clearInterval(timer);
    else p.api.refreshCells({columns: ticking, force: true, suppressFlash: true});
  }, 5000);
};
return {count: number(count), rate: number(rate), span: number(span), past: number(past),
  age: number(age), percent: number(percent), bytes: number(bytes), value: number((one) => one),
  ago, moment, link, state, share, curve, follow, fit, tick};
})();
