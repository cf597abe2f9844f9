// A browser does not obey a refresh at an address with a fragment, such as #token=... of a buyer.
setTimeout(() => location.reload(), 5000);
