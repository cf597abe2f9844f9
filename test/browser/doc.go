// Package browser looks at the pages as people do: in a headless Chromium, over the Go gateway and over nginx.
package browser
