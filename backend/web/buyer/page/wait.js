// pause resolves after a time, or when the signal aborts.
const pause = (ms, signal) => new Promise((done) => {
  if (signal?.aborted) return done();
  const timer = setTimeout(done, ms);
  signal?.addEventListener('abort', () => { clearTimeout(timer); done(); }, { once: true });
});

// spread varies a time by a quarter, so that thousands of pages do not poll together.
const spread = (ms) => ms * (0.75 + Math.random() / 2);

