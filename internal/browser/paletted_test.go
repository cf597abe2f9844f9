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
	"slices"
)

// heaviest is how large a picture may be, in bytes.
const heaviest = 100_000

// paletted writes a picture with the colours that it has most of: 256, or fewer for one that would be too heavy. Pages have few colours and their shades, so nobody sees the difference, and
// the file is a third as large.
func paletted(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	count := map[color.RGBA]int{}
	for y := from.Bounds().Min.Y; y < from.Bounds().Max.Y; y++ {
		for x := from.Bounds().Min.X; x < from.Bounds().Max.X; x++ {
			count[color.RGBAModel.Convert(from.At(x, y)).(color.RGBA)]++
		}
	}
	most := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) })
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
	return nil, fmt.Errorf("a picture of %v is heavier than %d bytes", from.Bounds().Max, heaviest)
}
