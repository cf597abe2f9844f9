package sale

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a sale's Details, in bytes.
const (
	MaxPictureLen     = 2000
	MaxDescriptionLen = 8000
)

// Details are shown on the page of a sale. They are in SQL only: lists of sales and sales read from
// Redis have none. The zero value is a sale without them.
type Details struct {
	Picture     string // http or https URL of an image
	Description string // Markdown
}

// Validate returns an *InvalidError that lists every invalid field, or nil.
func (d Details) Validate() error {
	var bad InvalidError
	d.addInvalid(&bad)
	return bad.Err()
}

func (d Details) addInvalid(bad *InvalidError) {
	switch {
	case len(d.Picture) > MaxPictureLen:
		bad.Add("picture", fmt.Sprintf("must not exceed %d bytes", MaxPictureLen))
	case d.Picture != "" && d.PictureOrigin() == "":
		bad.Add("picture", "must be an http or https URL such as https://shop.example/shoe.jpg")
	}
	switch {
	case len(d.Description) > MaxDescriptionLen:
		bad.Add("description", fmt.Sprintf("must not exceed %d bytes", MaxDescriptionLen))
	case !utf8.ValidString(d.Description) || strings.IndexFunc(d.Description, isUnprintable) >= 0:
		bad.Add("description", "must be UTF-8 text without control characters except tabs and line breaks")
	}
}

func isUnprintable(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' }

var (
	// pictureText has no character that ends a URL in HTML or in a header.
	pictureText = regexp.MustCompile(`^[!#-;=?-\[\]_a-z~]+$`)
	pictureHost = regexp.MustCompile(`^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]{1,5})?$`)
)

// PictureOrigin returns the scheme and the host of the picture's URL, which are safe in a Content-Security-Policy. It
// returns "" if there is no valid URL.
func (d Details) PictureOrigin() string {
	u, err := url.Parse(d.Picture)
	if err != nil || !pictureText.MatchString(d.Picture) || (u.Scheme != "http" && u.Scheme != "https") ||
		u.User != nil || !pictureHost.MatchString(u.Host) {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
