// A new sale. Repeated requests have the same id and opening time, so they create one sale and succeed.
const lastDay = '9999-12-31T23:59'; // browsers accept years of six digits but cannot convert them

// draft keeps the id and the time of the first attempt until the server confirms that a sale has this id, so that a repetition in another dialog
// sends the same ones.
let draft = null;

function newSale() {
  const mine = draft ??= { id: newKey().replaceAll('-', '').slice(0, 10), at: null };
  change({
    title: 'New sale', verb: 'Create', fields: [
      { name: 'title', label: 'Title', required: true, maxlength: 200 },
      { name: 'id', label: 'Id', maxlength: 64, placeholder: mine.id, help: 'Used in URLs: letters, digits, dots, dashes and underscores.' },
      { name: 'stock', label: 'Stock', type: 'number', required: true, min: 1, max: 1_000_000_000 },
      { name: 'price', label: 'Price', required: true, inputmode: 'decimal', maxlength: 20, placeholder: '19.99', help: '0: free.' },
      { name: 'currency', label: 'Currency', required: true, value: 'EUR', maxlength: 3 },
      { name: 'per_buyer', label: 'Limit per buyer', type: 'number', required: true, value: '1', min: 1 },
      { name: 'spread', label: 'Segments', type: 'number', required: true, value: '1', min: 1, max: 1000, help: 'Number of shards that sell this sale together. It cannot be changed later.' },
      { name: 'opens', label: 'Opens', type: 'datetime-local', max: lastDay, note: (v) => (v ? meaning(v) : 'Empty: now. Times are in ' + zone.name + '.') },
      { name: 'closes', label: 'Closes', type: 'datetime-local', max: lastDay, note: (v) => (v ? meaning(v) : 'Empty: never.') },
      { name: 'hold', label: 'Payment deadline', placeholder: 'none', maxlength: 20, help: 'Such as 15m or 1h30m. Unpaid orders are then cancelled, and their units go back on sale.' },
      ...pageFields({}),
    ],
    run: async (v) => {
      const currency = v.currency.trim().toUpperCase();
      mine.at ??= live.now();
      const sale = { id: v.id || mine.id, title: v.title, stock: Number(v.stock), price: { amount: minorUnits(v.price, currency), currency }, per_buyer: Number(v.per_buyer), spread: Number(v.spread), opens_at: (v.opens ? instant(v.opens) : mine.at).toISOString(), ...pageValues(v) };
      if (v.closes) sale.closes_at = instant(v.closes).toISOString();
      if (v.hold) sale.hold = v.hold;
      const got = await post('/sales', sale);
      if (got.ok || got.status === 409) draft = null;
      else if (got.status >= 400 && got.status < 500) mine.at = null; // no sale was created
      return got;
    },
    then: (got) => location.assign('/admin/sales/' + part(got.body.id)),
  });
}

// The optional picture and description of the buyer's page.
const pageFields = (sale) => [
  { name: 'picture', label: 'Picture', type: 'url', maxlength: 2000, value: sale.picture, placeholder: 'https://', help: 'The URL of an image. Optional.' },
  { name: 'description', label: 'Description', rows: 5, maxlength: 8000, value: sale.description, help: 'Markdown: headings, lists, links, bold and italic text. Optional.' },
];
const pageValues = (v) => ({ ...(v.picture && { picture: v.picture }), ...(v.description && { description: v.description }) });
