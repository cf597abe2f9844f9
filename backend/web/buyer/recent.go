package buyer

import (
	"sync"
	"time"

	"sluice/backend/web/page"
)

// pageAge is how long a rendered page is reused. Browsers and edges may cache it for as long. When a sale opens, all
// buyers request the same page.
const pageAge = time.Second

// maxRecent bounds the rendered pages: 50 KB each.
const maxRecent = 200

// recentPages keeps pages for at most pageAge, and evicts them together. The zero value is empty.
type recentPages struct {
	mu    sync.Mutex
	since time.Time // the pages are not older
	pages map[pageKey]page.Page
}

// pageKey holds everything that a page of a sale depends on.
type pageKey struct {
	lang Lang
	sale Sale
}

// get returns the page of a key, and renders it if it is missing or too old. Concurrent calls may render it several
// times.
func (r *recentPages) get(now time.Time, key pageKey, render func() (page.Page, error)) (page.Page, error) {
	r.mu.Lock()
	if age := now.Sub(r.since); age < 0 || age >= pageAge || len(r.pages) >= maxRecent {
		r.since, r.pages = now, map[pageKey]page.Page{}
	}
	pages := r.pages
	found, ok := pages[key]
	r.mu.Unlock()
	if ok {
		return found, nil
	}
	rendered, err := render()
	if err != nil {
		return rendered, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pages[key] = rendered // into the map from before the rendering; get may have replaced it since
	return rendered, nil
}
