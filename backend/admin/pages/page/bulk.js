// Many dead letters at once.

// inTurn does one thing after the other, and ends where one fails for another reason than that somebody else was faster.
async function inTurn(rows, run) {
  let done = 0, gone = 0;
  const refused = [];
  for (const d of rows) {
    const got = await run(d);
    if (got.ok) done++;
    else if (got.status === 404) gone++;
    else if (got.status === 409) refused.push(got.problem);
    else return { ok: false, problem: 'After ' + count(done) + ': ' + got.problem };
  }
  if (refused.length && !done) return { ok: false, problem: refused[0] };
  return { ok: true, said: count(done) + ' done' + (gone ? ', ' + count(gone) + ' were settled by somebody else' : '') + (refused.length ? ', ' + count(refused.length) + ' not: ' + refused[0] : '') + '.' };
}

// settleMatching settles everything that the filter names, page after page on the server. What dies again meanwhile is left alone, or a retry would go round for ever.
async function settleMatching(verb, { error_contains: text, sale, order }, letters) {
  if (order) {
    toast('An order id names one order: use its own buttons.');
    return;
  }
  const filter = { error_contains: text || undefined, sale: sale || undefined, died_before: live.now().toISOString(), all: !text && !sale };
  const what = [text && 'with the error “' + text + '”', sale && 'of the sale ' + sale].filter(Boolean).join(', ') || '– every one there is';
  let stop = false;
  const got = await ask({ title: (verb === 'retry' ? 'Retry' : 'Cancel') + ' all dead letters ' + what + '?', text: verb === 'retry' ? 'They go to the front of the queue as if they had never failed.' : 'Their units go back on sale for good.', verb: verb === 'retry' ? 'Retry all' : 'Cancel all', danger: verb === 'cancel', fields: [reasonField],
    run: async (v) => {
      let done = 0, failed = 0, after;
      const halt = button('Stop', () => { stop = true; halt.disabled = true; });
      fill(banner, h('span', null), halt);
      banner.hidden = false;
      do {
        const page = await post('/dead/' + verb, { ...filter, reason: v.reason, limit: 100, after });
        if (!page.ok) {
          banner.hidden = true;
          return { ok: false, problem: 'After ' + count(done) + ': ' + page.problem };
        }
        done += page.body.done;
        failed += page.body.failed;
        after = page.body.next;
        banner.firstChild.textContent = count(done) + ' done…';
      } while (after && !stop);
      banner.hidden = true;
      return { ok: true, said: (after ? 'Stopped. ' : '') + count(done) + ' done' + (failed ? ', ' + count(failed) + ' could not be' : '') + '.' };
    } });
  if (!got) return;
  toast(got.said);
  letters.restart();
}
