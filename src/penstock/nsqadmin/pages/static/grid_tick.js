(p) => {
  const ticking = p.api.getColumns().filter((one) => one.getColDef().context?.ticks);
  if (!ticking.length) return;
  const timer = setInterval(() => {
    if (p.api.isDestroyed()) clearInterval(timer);
    else p.api.refreshCells({columns: ticking, force: true, suppressFlash: true});
  }, 5000);
}
