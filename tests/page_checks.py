"""What any page is held against in a browser. Each is a script that lists what is wrong."""

CONTRAST = """() => {
  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const known = new Map();
  const numbers = (colour) => {
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((value, at) => a * value + (1 - a) * under[at]);
  const faded = (colour, under, opacity) => over([...colour, opacity], under);
  // what is seen of the text and of the ground of the last element of a chain that begins at the root
  const seen = (chain, under, ink) => {
    const [style, rest] = [getComputedStyle(chain[0]), chain.slice(1)];
    const ground = over(numbers(style.backgroundColor), under);
    const [text, back] = rest.length ? seen(rest, ground, ink) : [over(ink, ground), ground];
    return [faded(text, under, Number(style.opacity)), faded(back, under, Number(style.opacity))];
  };
  const linear = (v) => (v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const probe = document.body.appendChild(document.createElement('i'));
  probe.style.backgroundColor = 'Canvas';
  const canvas = numbers(getComputedStyle(probe).backgroundColor).slice(0, 3);
  probe.remove();
  const hasText = (e) => [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const bad = [];
  for (const element of document.querySelectorAll('body *')) {
    const field = element.matches('input:not([type=checkbox],[type=radio],[type=range]), select, textarea');
    if (!(field || hasText(element)) || element.matches(':disabled, :disabled *, .stage *, script, style')) continue;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const empty = field && element.placeholder && !element.value;
    const style = getComputedStyle(element, empty ? '::placeholder' : null);
    const ink = numbers(element.ownerSVGElement ? style.fill : style.color);
    if (ink[3] === 0) continue;  // a text that is not shown, as that of an input behind a label
    const chain = [];
    for (let at = element; at; at = at.parentElement) chain.unshift(at);
    const [a, b] = seen(chain, canvas, ink).map(light).sort((x, y) => y - x);
    const shown = (element.textContent.trim() || element.placeholder || element.value || '').slice(0, 40);
    if ((a + .05) / (b + .05) < 4.5) bad.push(`${element.className.baseVal ?? element.className} ${shown}`.trim());
  }
  return bad;
}"""
"""Texts that do not stand out from their ground, by the measure of WCAG: 4.5 for every size.

Colours and layers that let something through are mixed with what lies under them. What cannot be used now is left out,
as WCAG does; so are texts on pictures (`.stage`), and grounds that are pictures count as if they were not there.
"""
UNNAMED = """() => [...document.querySelectorAll('input, select, button, a, progress, iframe')]
  .filter((e) => e.checkVisibility() && !((e.labels && e.labels.length) || e.getAttribute('aria-label')
    || e.textContent.trim() || e.title)).map((e) => e.outerHTML)"""
HEADINGS = """() => {
  const shown = [...document.querySelectorAll('h1, h2, h3, h4')].filter((e) => e.checkVisibility());
  const levels = shown.map((e) => Number(e.tagName[1]));
  return levels.filter((level, index) => index === 0 ? level !== 1 : level === 1 || level > levels[index - 1] + 1);
}"""
"""UNNAMED: what can be used and has no name. HEADINGS: those that skip a level."""
