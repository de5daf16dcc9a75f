"use strict";
// Light or dark, as the system has it. The theme's own script looks for the style sheets of a highlighter that the site does without.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const applyMode = () => document.documentElement.setAttribute("data-bs-theme", dark.matches ? "dark" : "light");
applyMode();
dark.addEventListener("change", applyMode);
