import { follow, renew } from "./page.js";

const place = document.getElementById("runs");
follow("/live", () => renew(place));
