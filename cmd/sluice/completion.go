package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/events/notify"
	"sluice/backend/events/points"
	"sluice/backend/events/webhook"
)

// addCompletion adds the command that prints the shells' scripts, with an example of each.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd("completion") // explicitly, because cobra leaves it out while it parses flags
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		// or an unknown shell would be shown the help, and exit 0
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		c.Long = "" // the rest repeats the Short
		for shell, example := range map[string]string{
			"bash": "  source <(sluice completion bash)", "zsh": `  sluice completion zsh > "${fpath[1]}/_sluice"`,
			"fish":       "  sluice completion fish > ~/.config/fish/completions/sluice.fish",
			"powershell": "  sluice completion powershell | Out-String | Invoke-Expression",
		} {
			if sub, _, err := c.Find([]string{shell}); err == nil {
				sub.Long, sub.Example = "", example
			}
		}
	}
}

// completionTimeout bounds the wait of a shell after Tab.
const completionTimeout = 2 * time.Second

// completes makes a command complete its arguments by names that the server knows: the members of the list that is
// answered at path. Where most is above zero, no more than so many are wanted.
func (o *adminClient) completes(c *cobra.Command, most int, path, list, name, title string) *cobra.Command {
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		var answer map[string]any
		if o.call(ctx, http.MethodGet, path, nil, &answer) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp // a shell has no place for why
		}
		items, _ := answer[list].([]any)
		var found []cobra.Completion
		for _, item := range items {
			if member, ok := item.(map[string]any); ok {
				found = append(found, cobra.CompletionWithDesc(fmt.Sprint(member[name]), fmt.Sprint(member[title])))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

func (o *adminClient) completesSale(c *cobra.Command) *cobra.Command {
	return o.completes(c, 1, "/admin/v1/sales", "sales", "id", "title")
}

func (o *adminClient) completesEndpoint(c *cobra.Command, most int) *cobra.Command {
	return o.completes(c, most, "/admin/v1/webhooks", "webhooks", "id", "url")
}

// oneOf completes a flag with a fixed set of values.
func oneOf(c *cobra.Command, flag string, values ...cobra.Completion) {
	if err := c.RegisterFlagCompletionFunc(
		flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp),
	); err != nil {
		panic(err) // the flag does not exist: a programming error
	}
}

// ownGroups are the groups that this program runs.
var ownGroups = []cobra.Completion{points.Group, notify.Group, webhook.Group}
