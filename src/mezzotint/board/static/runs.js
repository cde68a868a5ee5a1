import { follow, renew } from "./page.js";

const list = document.getElementById("runs");
follow("/live", () => renew(list));
