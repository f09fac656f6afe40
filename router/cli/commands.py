"""The table of commands: their words, what help says of them, and where their functions are."""

from __future__ import annotations

from router.cli.groups import CommandEntry, CommandTable

_COMMANDS = {
    "profile": CommandEntry("Propose what to measure of a job; add results.", "router.cli.profile", "profile"),
    "offers": CommandEntry("List the offers of the price book, cheapest first.", "router.cli.offers", "offers"),
    "init": CommandEntry("Write a team's first files, with comments.", "router.cli.init", "init"),
    "validate": CommandEntry("Check job and limits files.", "router.cli.validate", "validate"),
    "plan": CommandEntry("Place jobs so that a step costs least.", "router.cli.plan", "plan"),
    "plan show": CommandEntry("Print a plan that was written with --out.", "router.cli.plan", "show"),
    "plan list": CommandEntry("List the names of plans, with the last plan of each.", "router.cli.plan", "list_plans"),
    "plan diff": CommandEntry("Compare two plans and explain the changes.", "router.cli.plan", "diff"),
    "plan what-if": CommandEntry(
        "Compare plans under other limits, prices or deadlines.", "router.cli.what_if", "what_if"
    ),
    "plan check": CommandEntry("Check whether a plan can still be applied.", "router.cli.plan_check", "check"),
    "plan approve": CommandEntry("Record who approves a plan.", "router.cli.approvals", "approve"),
    "backtest": CommandEntry("Compare policies on recorded spot availability.", "router.cli.backtest", "backtest"),
    "explain": CommandEntry("Explain why a job is placed where it is.", "router.cli.explain", "explain"),
    "estimate": CommandEntry("Compare what a step costs on several gangs.", "router.cli.estimate", "estimate"),
    "quote": CommandEntry("Estimate what a job costs by a deadline.", "router.cli.quotes", "quote"),
    "quotes list": CommandEntry("List the stored quotes.", "router.cli.quotes", "list_quotes"),
    "quotes calibration": CommandEntry(
        "Compare accepted quotes with the outcomes.", "router.cli.quotes", "calibration"
    ),
    "quotes fit": CommandEntry("Fit the ranges of quotes to the price history.", "router.cli.quotes", "fit"),
    "quotes show": CommandEntry("Print a stored quote again.", "router.cli.quotes", "show"),
    "profile list": CommandEntry("List what plans learn from earlier runs.", "router.cli.profile", "list_runs"),
    "profile show": CommandEntry("Show the runs of a job or a pool.", "router.cli.profile", "show"),
    "profile forget": CommandEntry("Ignore earlier runs, or count them again.", "router.cli.profile", "forget"),
    "apply": CommandEntry("Provision the machines of a plan, start its jobs.", "router.cli.apply", "apply"),
    "serve": CommandEntry("Show plans, jobs and costs in a browser; answer programs.", "router.cli.serve", "serve"),
    "approvals set": CommandEntry("Set the rules of approvals of the state.", "router.cli.approvals", "set_rules"),
    "approvals show": CommandEntry("Show the rules of approvals, and who set them.", "router.cli.approvals", "show"),
    "token make": CommandEntry("Make a token for the console and its API.", "router.cli.token", "make"),
    "token list": CommandEntry("List tokens, without the tokens themselves.", "router.cli.token", "list_tokens"),
    "token revoke": CommandEntry("Revoke a token and end its sessions.", "router.cli.token", "revoke"),
    "status": CommandEntry("Show gangs, machines and costs.", "router.cli.status", "status"),
    "logs": CommandEntry("Print the output of a job's ranks.", "router.cli.status", "logs"),
    "destroy": CommandEntry("Release machines.", "router.cli.destroy", "destroy"),
    "sweep": CommandEntry("Find and delete orphaned resources.", "router.cli.sweep", "sweep"),
    "watch": CommandEntry("Supervise all gangs; replace those that are lost.", "router.cli.watch", "watch"),
    "drill kill-node": CommandEntry("Switch a sandbox machine off.", "router.cli.drill", "kill_node"),
    "drill notice": CommandEntry("Send a sandbox machine an interruption notice.", "router.cli.drill", "notice"),
    "drill zone-down": CommandEntry("Close a sandbox zone and preempt its machines.", "router.cli.drill", "zone_down"),
    "drill zone-up": CommandEntry("Open zones that `drill zone-down` closed.", "router.cli.drill", "zone_up"),
    "drill slow-node": CommandEntry("Slow down the training on a sandbox machine.", "router.cli.drill", "slow_node"),
    "ledger list": CommandEntry("List planned, metered and added entries.", "router.cli.ledger", "list_entries"),
    "ledger add": CommandEntry("Add fees, credits and corrections.", "router.cli.ledger", "add"),
    "ledger periods": CommandEntry(
        "List closed and open months with their sums.", "router.cli.ledger_close", "periods"
    ),
    "ledger close": CommandEntry("Close the books of a month permanently.", "router.cli.ledger_close", "close"),
    "ledger verify": CommandEntry("Verify that the ledger is unchanged.", "router.cli.ledger", "verify"),
    "ledger export": CommandEntry("Export the ledger as a FOCUS file.", "router.cli.ledger", "export"),
    "ledger backup": CommandEntry("Back up the ledger to a file.", "router.cli.backups", "backup_ledger"),
    "ledger restore": CommandEntry("Restore a backup into an empty ledger.", "router.cli.backups", "restore_ledger"),
    "ledger archive": CommandEntry("Move entries of closed months to a file.", "router.cli.backups", "archive_ledger"),
    "state backup": CommandEntry("Back up state and run directories to a file.", "router.cli.backups", "backup_state"),
    "state restore": CommandEntry("Restore a missing state from a backup.", "router.cli.backups", "restore_state"),
    "budget list": CommandEntry("List monthly budgets and what is spent.", "router.cli.budget", "list_budgets"),
    "budget set": CommandEntry("Set the budget of everybody, a team or a project.", "router.cli.budget", "set_budget"),
    "budget remove": CommandEntry("Remove a budget.", "router.cli.budget", "remove"),
    "budget check": CommandEntry("Check budgets and send notices.", "router.cli.budget", "check"),
    "audit": CommandEntry("Print the audit log and verify its hash chain.", "router.cli.audit", "audit"),
    "checkpoint push": CommandEntry("Copy checkpoints to durable storage.", "router.cli.checkpoint", "push"),
    "checkpoint pull": CommandEntry("Fetch the newest good checkpoint.", "router.cli.checkpoint", "pull"),
    "checkpoint copy": CommandEntry("Copy the newest checkpoint to another region.", "router.cli.checkpoint", "copy"),
    "checkpoint list": CommandEntry(
        "List checkpoints on durable storage.", "router.cli.checkpoint", "list_checkpoints"
    ),
    "checkpoint verify": CommandEntry("Verify stored checkpoints byte by byte.", "router.cli.checkpoint", "verify"),
    "checkpoint watch": CommandEntry("Copy each checkpoint as it is written.", "router.cli.checkpoint", "watch"),
    "checkpoint run": CommandEntry("Run a training with an uploader beside it.", "router.cli.checkpoint", "run"),
    "demo": CommandEntry("Run a whole training on a simulated cloud.", "router.cli.demo", "demo"),
    "prices refresh": CommandEntry("Fetch what the clouds sell into a price book.", "router.cli.prices", "refresh"),
    "prices list": CommandEntry("List the stored price books.", "router.cli.prices", "list_books"),
    "prices use": CommandEntry("Make a stored price book the latest again.", "router.cli.prices", "use_book"),
    "prices diff": CommandEntry("Compare two price books.", "router.cli.prices", "diff"),
    "prices history": CommandEntry("Show the history of prices and stock.", "router.cli.offers", "history"),
    "prices risk": CommandEntry("Show how often spot is interrupted, and why.", "router.cli.offers", "risk"),
    "prices accelerators": CommandEntry(
        "List the rates of accelerators, and what is missing.", "router.cli.prices", "list_accelerators"
    ),
    "prices import": CommandEntry("Import offers from a catalogue file.", "router.cli.prices", "import_file"),
    "bills import": CommandEntry("Import bills of clouds (FOCUS 1.0 to 1.4).", "router.cli.bills", "import_files"),
    "bills list": CommandEntry("List the imported bills.", "router.cli.bills", "list_bills"),
    "bills show": CommandEntry("Show one bill: sums, files and gaps.", "router.cli.bills", "show"),
    "bills restore": CommandEntry("Restore an earlier version of a bill.", "router.cli.bills", "restore"),
    "bills remove": CommandEntry("Remove a bill that should not count.", "router.cli.bills", "remove"),
    "bills duplicates": CommandEntry(
        "List charges on two bills, or accept an issuer's.", "router.cli.bills", "duplicates"
    ),
    "bills reconcile": CommandEntry(
        "Reconcile bills with planned and metered costs.", "router.cli.bills_reconcile", "reconcile"
    ),
    "ledger check": CommandEntry("Validate a FOCUS file.", "router.cli.ledger", "check"),
    "showback": CommandEntry("Report the costs of a month by team and job.", "router.cli.showback", "showback"),
    "showback accuracy": CommandEntry(
        "Compare what plans predicted with what was measured.", "router.cli.showback", "accuracy"
    ),
    "stock": CommandEntry("Ask where a gang is likely to be available.", "router.cli.clouds", "stock"),
    "quotas": CommandEntry("List quotas and reserved capacity.", "router.cli.clouds", "quotas"),
    "doctor": CommandEntry("Check access and permissions in each cloud.", "router.cli.clouds", "doctor"),
    "schema": CommandEntry("Print the JSON Schema of a file.", "router.cli.schema", "schema"),
    "completion": CommandEntry("Print the completion script of a shell.", "router.cli.completion", "completion"),
    "import sky": CommandEntry("Convert a SkyPilot task into a job.", "router.cli.import_sky", "import_sky"),
}

_GROUPS = {
    "approvals": "Say who must approve plans before they are applied.",
    "bills": "Import the bills of clouds and reconcile them.",
    "budget": "Set and check what a month may cost.",
    "checkpoint": "Keep checkpoints on durable storage.",
    "drill": "Break things on the sandbox on purpose.",
    "import": "Turn the files of other tools into jobs.",
    "ledger": "Keep the books: entries, months, exports.",
    "prices": "Fetch, compare and look back at prices.",
    "quotes": "Look at stored quotes and how they held.",
    "state": "Back up and restore the state.",
    "token": "Say who may see and do what in the console.",
}
_SECTIONS = {
    "Plan": ("init", "validate", "plan", "explain", "profile", "offers", "stock", "import"),
    "Quote": ("estimate", "quote", "quotes", "backtest"),
    "Run": ("apply", "status", "logs", "watch", "destroy", "sweep", "checkpoint", "drill", "demo"),
    "Account": ("showback", "ledger", "bills", "budget"),
    "Operate": ("serve", "token", "approvals", "prices", "doctor", "quotas", "state", "audit", "schema", "completion"),
}
#: `plan show FILE` is a command of its own although `plan PATH` is one too.
TABLE = CommandTable(_COMMANDS, _GROUPS, _SECTIONS)
