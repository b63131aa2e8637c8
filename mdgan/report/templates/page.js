"use strict";

(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (systemIsDark.matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  systemIsDark.addEventListener("change", label);
  label();
})();

(() => {
  const viewer = document.getElementById("viewer");
  let buttons = [];
  let place = 0;
  const show = (next) => {
    place = Math.min(Math.max(next, 0), buttons.length - 1);
    const image = buttons[place].querySelector("img").cloneNode();
    const caption = document.createElement("p");
    const what = document.createElement("span");
    const hint = document.createElement("span");
    what.textContent = image.alt;
    hint.textContent = `${place + 1} of ${buttons.length}, arrow keys`;
    caption.append(what, hint);
    viewer.replaceChildren(image, caption);
  };
  for (const film of document.querySelectorAll(".film")) {
    const frames = [...film.querySelectorAll("button")];
    frames.forEach((frame, number) => frame.addEventListener("click", () => {
      buttons = frames;
      show(number);
      viewer.showModal();
    }));
  }
  viewer.addEventListener("click", () => viewer.close());
  viewer.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      event.preventDefault();
      show(place + step);
    }
  });
})();

(() => {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));
})();
