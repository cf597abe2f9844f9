package browser

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// heaviest is the largest accepted size of a picture, in bytes.
const heaviest = 100_000

// paletted encodes a picture with at most 256 colours. Colours that fill an area come first, so that a small mark in a
// legend keeps its colour, then the most frequent ones. Pages have few colours and their shades, so the difference is
// invisible, and the file has a third of the size.
func paletted(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	count, flat := map[color.RGBA]int{}, map[color.RGBA]bool{}
	for y := from.Bounds().Min.Y; y < from.Bounds().Max.Y; y++ {
		for x := from.Bounds().Min.X; x < from.Bounds().Max.X; x++ {
			c := at(x, y)
			count[c]++
			flat[c] = flat[c] || isFlat(c, x, y, from.Bounds(), at)
		}
	}
	most := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		if flat[a] != flat[b] {
			if flat[a] {
				return -1
			}
			return 1
		}
		return cmp.Compare(count[b], count[a])
	})
	for n := 256; n >= 16; n /= 2 {
		var colours color.Palette
		for _, c := range most[:min(len(most), n)] {
			colours = append(colours, c)
		}
		to := image.NewPaletted(from.Bounds(), colours)
		draw.Draw(to, to.Bounds(), from, from.Bounds().Min, draw.Src)
		var out bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
			return nil, err
		}
		if out.Len() <= heaviest {
			return out.Bytes(), nil
		}
	}
	return nil, fmt.Errorf("a picture of %v is larger than %d bytes", from.Bounds().Max, heaviest)
}

// markSide is the side of the smallest square that a mark fills, in pixels. Shades at the edge of a letter or a line do
// not fill one.
const markSide = 4

// isFlat reports whether a square at x, y has a single colour.
func isFlat(c color.RGBA, x, y int, bounds image.Rectangle, at func(x, y int) color.RGBA) bool {
	if x+markSide > bounds.Max.X || y+markSide > bounds.Max.Y {
		return false
	}
	for dy := range markSide {
		for dx := range markSide {
			if at(x+dx, y+dy) != c {
				return false
			}
		}
	}
	return true
}

// Two marks of a legend keep different colours in a large picture with many other shades.
func TestPalettedKeepsTheColoursOfSmallMarks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	picture := image.NewRGBA(image.Rect(0, 0, 400, 400))
	for y := range 400 {
		for x := range 400 {
			picture.SetRGBA(x, y,
				color.RGBA{uint8(random.UintN(64)), uint8(200 + random.UintN(8)), uint8(200 + random.UintN(8)), 255})
		}
	}
	marks := map[image.Point]color.RGBA{{50, 50}: {208, 135, 0, 255}, {70, 50}: {198, 40, 40, 255}}
	for p, c := range marks {
		draw.Draw(picture, image.Rect(p.X, p.Y, p.X+7, p.Y+7), image.NewUniform(c), image.Point{}, draw.Src)
	}
	var file bytes.Buffer
	if err := png.Encode(&file, picture); err != nil {
		t.Fatal(err)
	}
	light, err := paletted(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got, err := png.Decode(bytes.NewReader(light))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.ColorModel().(color.Palette)); n > 64 {
		t.Fatalf("the picture has %d colours: it was small enough for all of them", n)
	}
	for p, want := range marks {
		if c := color.RGBAModel.Convert(got.At(p.X+3, p.Y+3)); c != want {
			t.Errorf("the mark at %v has the colour %v, want %v", p, c, want)
		}
	}
}
