// The page reloads by script, because a browser ignores a meta refresh at an address with a fragment such as
// #token=... The delay is random, so that the pages of many buyers do not reload together.
setTimeout(() => location.reload(), 5000 + 5000 * Math.random());
