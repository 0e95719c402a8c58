(p) => {
  if (!p.clientWidth) return;
  const show = [], hide = [];
  for (const one of p.api.getColumns()) {
    const from = one.getColDef().context?.from;
    if (from && one.isVisible() !== p.clientWidth >= from)
      (one.isVisible() ? hide : show).push(one);
  }
  if (show.length) p.api.setColumnsVisible(show, true);
  if (hide.length) p.api.setColumnsVisible(hide, false);
}
