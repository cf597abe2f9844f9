package redisscript

// Read returns the text of a file of this directory, for a test that runs one include.
var Read = read
