package buyer

import (
	"fmt"
	"strings"

	"golang.org/x/text/currency"
	"golang.org/x/text/language"

	"sluice/backend/sale"
)

// Lang is a language that the pages speak, as a BCP 47 tag.
type Lang string

// The languages.
const (
	English Lang = "en"
	Chinese Lang = "zh"
)

var langs = []Lang{English, Chinese}

// Readers of traditional characters rather have simplified ones than English.
var matcher = language.NewMatcher([]language.Tag{language.English, language.Chinese, language.TraditionalChinese})

func (l Lang) other() Lang {
	if l == English {
		return Chinese
	}
	return English
}

// Language chooses: what was asked for by name ("en" or "zh"), else the best of an Accept-Language header. English is
// for whoever asks for neither.
func Language(asked, accept string) Lang {
	for _, l := range langs {
		if asked == string(l) {
			return l
		}
	}
	if len(accept) > 200 { // a header that long is no browser's
		return English
	}
	tags, _, err := language.ParseAcceptLanguage(accept)
	if err != nil || len(tags) == 0 {
		return English
	}
	_, at, _ := matcher.Match(tags...)
	return langs[min(at, len(langs)-1)]
}

// formatPrice writes an amount in minor units with as many decimals as its currency has; nobody knows better of a
// currency that is unknown: two.
func formatPrice(lang Lang, p sale.Price) string {
	if p.Amount == 0 {
		return map[Lang]string{English: "Free", Chinese: "免费"}[lang]
	}
	decimals := 2
	if unit, err := currency.ParseISO(p.Currency); err == nil {
		decimals, _ = currency.Standard.Rounding(unit)
	}
	whole := fmt.Sprintf("%0*d", decimals+1, p.Amount)
	split := len(whole) - decimals
	out := grouped(whole[:split])
	if decimals > 0 {
		out += "." + whole[split:]
	}
	if lang == English {
		return out + " " + p.Currency
	}
	return p.Currency + " " + out
}

// grouped puts a comma before every third digit from the right.
func grouped(digits string) string {
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
