package fleetlimit

import "context"

// Begin is one step of Run.
func (c *Client) Begin(ctx context.Context) { c.begin(ctx) }
