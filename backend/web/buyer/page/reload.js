// A browser does not obey a refresh at an address with a fragment, such as #token=... of a buyer. The pages of many
// buyers reload at different times.
setTimeout(() => location.reload(), 5000 + 5000 * Math.random());
