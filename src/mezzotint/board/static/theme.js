// Light or dark as the system says, or as was chosen here before; read before anything is painted.
try {
  const chosen = localStorage.getItem("mezzotint-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* a browser without storage takes the system's */ }
