// openModal shows a dialog. When it closes, the browser focuses the control that opened it; a new version of that control is focused here.
function openModal(dialog) {
  const opener = document.activeElement;
  dialog.addEventListener('close', () => {
    dialog.remove();
    if (!opener.isConnected) (sameControl(view, opener) || view).focus();
  });
  document.body.append(dialog);
  dialog.showModal();
}

// openDialog confirms an action and runs it. run receives the values of the fields and a handle of the dialog, and returns a result like that of api.
// If the action fails, the dialog stays open and shows why. The promise resolves to the result, or to null if the dialog is dismissed before the
// action begins. An action of a dialog that is dismissed later continues: a failure is then shown on the page.
function openDialog({ title, text, fields = [], verb, danger, run }) {
  return new Promise((resolve) => {
    const inputs = fields.map((f) => h(f.options ? 'select' : f.rows ? 'textarea' : 'input', {
      name: f.name, type: f.options || f.rows ? undefined : f.type || 'text', rows: f.rows, inputmode: f.inputmode, required: f.required || undefined, min: f.min, max: f.max, maxlength: f.maxlength, placeholder: f.placeholder,
      value: f.value, checked: f.type === 'checkbox' ? f.checked : undefined, step: f.step,
    }, (f.options || []).map((o) => h('option', { value: o[0] }, o[1]))));
    fields.forEach((f, i) => { if (f.rows && f.value) inputs[i].value = f.value; });
    const notes = fields.map((f, i) => { // explains the value of an input, updated with each change
      if (!f.note) return null;
      const note = h('small', { class: 'soft', role: 'status' }), update = () => { note.textContent = f.note(inputs[i].value); };
      inputs[i].addEventListener('input', update);
      update();
      return note;
    });
    const problem = h('p', { class: 'problem', role: 'alert', hidden: true }), progress = h('p', { class: 'soft', role: 'status', hidden: true });
    const handle = { dismissed: () => !dialog.open, progress: (text) => { progress.textContent = text; progress.hidden = false; } };
    const go = h('button', { class: danger ? 'danger' : 'main', value: 'go' }, verb);
    let answer = null;
    const form = h('form', { method: 'dialog', onsubmit: async (e) => {
      if (e.submitter !== go) return;
      e.preventDefault();
      if (go.disabled) return;
      const focused = document.activeElement === go;
      go.disabled = true;
      problem.hidden = true;
      const values = Object.fromEntries(fields.map((f, i) => [f.name, f.type === 'checkbox' ? inputs[i].checked : inputs[i].value]));
      let got;
      try { got = await run(values, handle); } catch (e) { got = { ok: false, problem: e.message }; } // invalid value
      if (got.ok || !dialog.open) {
        if (!got.ok) toast(got.problem);
        answer = got.ok ? got : null;
        if (dialog.open) dialog.close();
        else resolve(answer);
        return;
      }
      progress.hidden = true;
      problem.textContent = got.problem;
      problem.hidden = false;
      go.disabled = false;
      if (focused) go.focus(); // a disabled button loses the focus
    } },
    h('h2', { id: 'dialog-title' }, title), text && h('p', null, text),
    fields.map((f, i) => h('label', { class: f.type === 'checkbox' ? 'check' : '' }, f.label, inputs[i], notes[i], f.help && h('small', { class: 'soft' }, f.help))), problem, progress,
    h('div', { class: 'row end' }, h('button', { value: 'no', formnovalidate: true }, 'Back'), go));
    const dialog = h('dialog', { 'aria-labelledby': 'dialog-title' }, form);
    dialog.addEventListener('close', () => { if (answer || !go.disabled) resolve(answer); });
    openModal(dialog);
    (inputs[0] || go).focus();
  });
}

// change opens a dialog. After a success it shows the message of the result or of the dialog, and calls then with the result.
async function change({ message, then, ...dialog }) {
  const got = await openDialog(dialog);
  if (!got) return;
  if (got.message || message) toast(got.message || message);
  then(got);
}

// showSecret shows a text that the server returns only once. Escape does not close the dialog.
function showSecret(title, text, secret) {
  return new Promise((resolve) => {
    const copied = h('span', { class: 'soft', role: 'status' });
    const copy = button('Copy', async () => {
      try { await navigator.clipboard.writeText(secret); copied.textContent = 'Copied.'; } catch { copied.textContent = 'Select the text and copy it.'; }
    });
    const dialog = h('dialog', { 'aria-labelledby': 'secret-title', onkeydown: (e) => { if (e.key === 'Escape') e.preventDefault(); }, oncancel: (e) => e.preventDefault() }, h('form', { method: 'dialog' }, h('h2', { id: 'secret-title' }, title), h('p', null, text), h('p', null, h('code', { id: 'secret' }, secret)),
      h('div', { class: 'row end' }, copied, copy, h('button', { class: 'main' }, 'I have stored it'))));
    dialog.addEventListener('close', resolve);
    openModal(dialog);
  });
}

const reasonField = { name: 'reason', label: 'Reason', maxlength: 200, placeholder: 'Optional', help: 'Recorded in the log with your name.' };

const newKey = () => crypto.randomUUID ? crypto.randomUUID() : Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('');
