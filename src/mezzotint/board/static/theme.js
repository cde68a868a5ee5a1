// The theme of the system, or the one chosen earlier in this browser; applied before the first paint.
try {
  const chosen = localStorage.getItem("mezzotint-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* without storage, the theme of the system applies */ }
