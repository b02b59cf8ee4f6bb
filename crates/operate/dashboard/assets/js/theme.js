// Light or dark, before anything is drawn: as the system says, unless somebody chose.
// No module: a module runs after the first paint.
(() => {
  const KEY = "pilotfish.theme";
  const read = () => {
    try { return localStorage.getItem(KEY); } catch { return null; }
  };
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") {
      document.documentElement.dataset.theme = theme;
    } else {
      delete document.documentElement.dataset.theme;
    }
  };
  apply(read());
  const system = matchMedia("(prefers-color-scheme: dark)");
  window.pilotfishTheme = {
    /** `light`, `dark`, or `system`. */
    chosen: () => read() ?? "system",
    isDark: () => (read() ?? (system.matches ? "dark" : "light")) === "dark",
    choose(theme) {
      try {
        if (theme === "system") localStorage.removeItem(KEY); else localStorage.setItem(KEY, theme);
      } catch { /* It lasts as long as the page. */ }
      apply(theme);
      window.dispatchEvent(new Event("pilotfish-theme"));
    },
  };
  system.addEventListener("change", () => window.dispatchEvent(new Event("pilotfish-theme")));
})();
