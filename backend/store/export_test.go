package store

// SetPartSizes sets the sizes of the parts of OrderPage, and returns a function that resets them.
func SetPartSizes(sizes ...int) (reset func()) {
	before := partSizes
	partSizes = sizes
	return func() { partSizes = before }
}
