// A new sale. The id is chosen before the request, so that a repeated request creates one sale.
const lastDay = '9999-12-31T23:59'; // browsers accept years of six digits but cannot convert them

async function newSale() {
  const fallback = newKey().replaceAll('-', '').slice(0, 10);
  const got = await openDialog({
    title: 'New sale', verb: 'Create', fields: [
      { name: 'title', label: 'Title', required: true, maxlength: 200 },
      { name: 'id', label: 'Id', maxlength: 64, placeholder: fallback, help: 'Used in URLs: letters, digits, dots, dashes and underscores.' },
      { name: 'stock', label: 'Stock', type: 'number', required: true, min: 1, max: 1_000_000_000 },
      { name: 'amount', label: 'Price in minor units', type: 'number', required: true, min: 0, max: 999_999_999_999_999, help: '1999 is 19.99 EUR' },
      { name: 'currency', label: 'Currency', required: true, value: 'EUR', maxlength: 3 },
      { name: 'per_buyer', label: 'Limit per buyer', type: 'number', required: true, value: '1', min: 1 },
      { name: 'opens', label: 'Opens', type: 'datetime-local', max: lastDay, help: 'In your time zone. Empty: now.' },
      { name: 'closes', label: 'Closes', type: 'datetime-local', max: lastDay, help: 'Empty: never.' },
      { name: 'hold', label: 'Payment deadline', placeholder: 'none', maxlength: 20, help: 'Such as 15m or 1h30m. Unpaid orders are then cancelled, and their units go back on sale.' },
    ],
    run: (v) => {
      const sale = { id: v.id || fallback, title: v.title, stock: Number(v.stock), price: { amount: Number(v.amount), currency: v.currency.toUpperCase() }, per_buyer: Number(v.per_buyer), opens_at: (v.opens ? new Date(v.opens) : live.now()).toISOString() };
      if (v.closes) sale.closes_at = new Date(v.closes).toISOString();
      if (v.hold) sale.hold = v.hold;
      return post('/sales', sale);
    },
  });
  if (got) location.assign('/admin/sales/' + part(got.body.id));
}
