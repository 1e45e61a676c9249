"""What any page is held against in a browser. Each is a script that lists what is wrong."""

CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (v) => (v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > .99) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const texts = "p,li,td,th,dt,dd,h1,h2,h3,a,label,figcaption,small,button,blockquote,pre,.word,.yes";
  for (const element of document.querySelectorAll(texts)) {
    if (!element.offsetParent || !element.textContent.trim() || element.closest(".stage")) continue;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(behind(element))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) bad.push(element.className + " " + element.textContent.trim().slice(0, 40));
  }
  return bad;
}"""
"""Texts that do not stand out from their background, by the measure of WCAG."""
UNNAMED = """() => [...document.querySelectorAll('input, select, button, a, progress, iframe')]
  .filter((e) => e.checkVisibility() && !((e.labels && e.labels.length) || e.getAttribute('aria-label')
    || e.textContent.trim() || e.title)).map((e) => e.outerHTML)"""
HEADINGS = """() => {
  const shown = [...document.querySelectorAll('h1, h2, h3, h4')].filter((e) => e.checkVisibility());
  const levels = shown.map((e) => Number(e.tagName[1]));
  return levels.filter((level, index) => index === 0 ? level !== 1 : level === 1 || level > levels[index - 1] + 1);
}"""
"""UNNAMED: what can be used and has no name. HEADINGS: those that skip a level."""
