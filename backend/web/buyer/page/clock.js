// The server's time. The browser's clock may be wrong, so it is not used. The Date header of a response names a second that had begun
// when the response was sent; the maximum over all responses is therefore the best estimate, and never ahead of the server.
const clock = {
  offset: Number(root.dataset.now) - performance.now(),
  update(response) {
    const date = Date.parse(response.headers.get('date'));
    if (date) this.offset = Math.max(this.offset, date - performance.now());
  },
  now() { return performance.now() + this.offset; },
};

