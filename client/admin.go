package client

// Admin calls the admin API. It is safe for concurrent use; the zero value is not usable. For operations without a
// method, use Do.
//
// The error of a method matches Unauthorized if the token is wrong, BadRequest if a value is invalid (Problem.Errors
// names it), and NotFound if there is no sale, order, dead letter or endpoint of this name. After Unavailable, a change
// may have been stored: repeat the call.
type Admin struct{ conn }

// NewAdmin returns an Admin for the admin listener at base, such as http://127.0.0.1:8081, with the admin token
// (SLUICE_ADMIN_TOKEN). It returns an error if base is not an http or https address. It sends no request.
func NewAdmin(base, token string, options ...Option) (*Admin, error) {
	c, err := newConn(base, append([]Option{WithToken(token)}, options...))
	return &Admin{c}, err
}

// WithActor sets the name under which the action log records the changes. The server rejects the names audit, hold,
// rebuild, sluice and unknown, which are reserved for automatic actions.
func WithActor(name string) Option { return func(c *conn) { c.actor = name } }
