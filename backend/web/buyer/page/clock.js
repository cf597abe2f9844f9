// The server's time. The browser's own clock may be an hour wrong, so it is never asked: each answer's Date names a second that had begun when the
// answer left, so the highest of what they say is the best, and never early.
const clock = {
  offset: Number(root.dataset.now) - performance.now(),
  heard(response) {
    const date = Date.parse(response.headers.get('date'));
    if (date) this.offset = Math.max(this.offset, date - performance.now());
  },
  now() { return performance.now() + this.offset; },
};

