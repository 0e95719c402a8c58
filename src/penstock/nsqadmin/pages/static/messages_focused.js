(p) => { const row = p.api.getDisplayedRowAtIndex(p.rowIndex);
  clearTimeout(window.penstockOpening);
  if (row) window.penstockOpening = setTimeout(() => emitEvent('message-open', row.data.at), 120);
}
