// Package browser tests the pages in a headless Chromium, through the Go gateway and through nginx.
package browser
