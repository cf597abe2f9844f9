package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// addCompletion adds the command that prints the shells' scripts, with an example of each.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd("completion") // explicitly, because cobra leaves it out while it parses flags
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		panic(err) // the command does not exist: a programming error
	}
	c.RunE = help            // without it, the command does not check its arguments: an unknown shell would exit 0
	c.Args, c.Long = nil, "" // see wrapArgs; the rest repeats the Short
	examples := map[string]string{
		"bash":       "  source <(sluice completion bash)",
		"zsh":        `  sluice completion zsh > "${fpath[1]}/_sluice"`,
		"fish":       "  sluice completion fish > ~/.config/fish/completions/sluice.fish",
		"powershell": "  sluice completion powershell | Out-String | Invoke-Expression",
	}
	for _, sub := range c.Commands() {
		sub.Args, sub.Long, sub.Example = nil, "", examples[sub.Name()]
	}
}

// completed are the arguments that the server completes, by their name in a usage line.
var completed = []struct{ arg, list, name, title string }{
	{"SALE", "sales", "id", "title"},
	{"ENDPOINT", "webhooks", "id", "url"},
	{"GROUP", "groups", "name", "dead"},
}

// completionTimeout bounds the request for a completion, while the shell waits.
const completionTimeout = 2 * time.Second

// completeArgs completes the first argument of a command, or all if its usage repeats it, with names from the server.
func (o *adminClient) completeArgs(c *cobra.Command) {
	for _, a := range completed {
		if !strings.Contains(c.Use, a.arg) || c.ValidArgs != nil {
			continue
		}
		several := strings.Contains(c.Use, a.arg+"...")
		c.ValidArgsFunction = func(
			cmd *cobra.Command, args []string, _ string,
		) (found []cobra.Completion, _ cobra.ShellCompDirective) {
			ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
			defer cancel()
			answer := listing[map[string]any]{name: a.list}
			if several || len(args) == 0 {
				_ = o.do(ctx, get(adminPath(a.list)), &answer) // a shell does not show errors
			}
			for _, item := range answer.items {
				found = append(found, cobra.CompletionWithDesc(fmt.Sprint(item[a.name]), fmt.Sprint(item[a.title])))
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		}
	}
}
