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

// recentPages keeps pages for pageAge. The zero value is empty.
type recentPages struct {
	mu    sync.Mutex
	pages map[pageKey]recentPage
}

// pageKey holds everything that a page of a sale depends on.
type pageKey struct {
	lang Lang
	sale Sale
}

type recentPage struct {
	page.Page
	at time.Time
}

// get returns the page of a key, and renders it if it is missing or too old. Concurrent calls may render it several
// times.
func (r *recentPages) get(now time.Time, key pageKey, render func() (page.Page, error)) (page.Page, error) {
	r.mu.Lock()
	found, ok := r.pages[key]
	r.mu.Unlock()
	if age := now.Sub(found.at); ok && age >= 0 && age < pageAge {
		return found.Page, nil
	}
	rendered, err := render()
	if err != nil {
		return rendered, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pages == nil || len(r.pages) >= maxRecent {
		r.pages = map[pageKey]recentPage{}
	}
	r.pages[key] = recentPage{rendered, now}
	return rendered, nil
}
