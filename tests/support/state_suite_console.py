"""Tests of long work on any database: a task is taken once, and again when its worker dies."""

from __future__ import annotations

from datetime import timedelta

from pricing.money import ZERO
from router.planning.document.plan_json import plan_content, plan_to_json
from router.state.idempotency import ABANDONED, KeyState, StoredAnswer
from router.state.idempotency import KEPT as KEYS_KEPT
from router.state.plans import MadePlanEntry
from router.state.store import StateStore
from router.state.tasks import EVENTS_KEPT, KEPT, MAX_TRIES, SILENT, TaskState
from router.state.webhook_deliveries import KEPT as DELIVERIES_KEPT
from router.state.webhook_deliveries import DeliveryState, StateHeads, WebhookDelivery
from tests.support.scenes import NORTH, a_job, plan_of
from tests.support.state_suite import StateSuite, together
from tests.support.state_values import NOW

SECOND = timedelta(seconds=1)


class TasksSuite(StateSuite):
    """Long work that was asked for at a server."""

    def test_a_task_goes_from_the_queue_to_its_result(self, store: StateStore) -> None:
        asked = store.tasks.put("quote", "ana", "red", {"job": "a\0b"}, NOW)
        assert (asked.state, asked.tries, asked.team) == (TaskState.QUEUED, 0, "red")
        assert store.tasks.take("w1", ["plan"], NOW) is None
        taken = store.tasks.take("w1", ["quote", "plan"], NOW + SECOND)
        assert taken is not None
        assert (taken.id, taken.state, taken.worker) == (asked.id, TaskState.RUNNING, "w1")
        assert store.tasks.progress(asked.id, "w1", "half", NOW + 2 * SECOND)
        assert store.tasks.finish(asked.id, "w1", {"usd": "1.50"}, NOW + 3 * SECOND)
        found = store.tasks.find(asked.id)
        assert found is not None
        assert (found.state, found.result, found.ended_at) == (TaskState.DONE, '{"usd":"1.50"}', NOW + 3 * SECOND)
        assert [(e.number, e.what, e.text) for e in found.events] == [
            (1, "state", "queued"),
            (2, "state", "running"),
            (3, "progress", "half"),
            (4, "state", "done"),
        ]
        assert not store.tasks.cancel(asked.id, NOW)

    def test_two_servers_never_run_one_task_twice(self, url: str) -> None:
        with StateStore.open(url, now=NOW) as one, StateStore.open(url, now=NOW) as other:
            for number in range(12):
                one.tasks.put("quote", "ana", "", {}, NOW + number * SECOND)
            taken: list[str] = []

            def work(index: int) -> None:
                store = (one, other)[index % 2]
                while (task := store.tasks.take(f"w{index}.{len(taken)}", ["quote"], NOW)) is not None:
                    taken.append(task.id)

            together(4, work)
            assert len(taken) == len(set(taken)) == 12

    def test_the_task_of_a_silent_worker_is_taken_again_and_the_worker_writes_no_more(self, store: StateStore) -> None:
        task = store.tasks.put("quote", "ana", "", {}, NOW)
        assert store.tasks.take("w1", ["quote"], NOW) is not None
        assert store.tasks.heartbeat(task.id, "w1", NOW + SILENT)
        assert store.tasks.take("w2", ["quote"], NOW + 2 * SILENT) is None
        again = store.tasks.take("w2", ["quote"], NOW + 2 * SILENT + SECOND)
        assert again is not None
        assert (again.worker, again.tries) == ("w2", 2)
        assert not store.tasks.heartbeat(task.id, "w1", NOW + 2 * SILENT)
        assert not store.tasks.progress(task.id, "w1", "late", NOW + 2 * SILENT)
        assert not store.tasks.finish(task.id, "w1", {}, NOW + 2 * SILENT)
        assert not store.tasks.fail(task.id, "w1", "late", NOW + 2 * SILENT)

    def test_what_a_task_came_to_is_stored_with_its_end_or_not_at_all(self, store: StateStore) -> None:
        task = store.tasks.put("plan", "ana", "", {}, NOW)
        plan = plan_of([a_job()], [NORTH])
        digest = str(plan_content(plan)["digest"])
        entry = MadePlanEntry.of(digest, plan_to_json(plan), plan.as_of, NOW, "ana", "night")
        assert store.tasks.take("w1", ["plan"], NOW) is not None
        assert store.tasks.take("w2", ["plan"], NOW + 2 * SILENT) is not None
        assert not store.tasks.finish(task.id, "w1", {}, NOW + 2 * SILENT, entry)
        assert store.made_plans.newest() == ()
        assert store.tasks.finish(task.id, "w2", {"digest": digest}, NOW + 2 * SILENT, entry)
        assert not store.tasks.finish(task.id, "w2", {}, NOW + 2 * SILENT, entry)
        (row,) = store.made_plans.newest()
        assert (row.digest, row.made_by, row.name) == (digest, "ana", "night")
        assert (row.as_of, row.made_at) == (plan.as_of, NOW + 2 * SILENT)

    def test_a_task_whose_workers_always_die_fails(self, store: StateStore) -> None:
        task = store.tasks.put("quote", "ana", "", {}, NOW)
        at = NOW
        for number in range(MAX_TRIES):
            assert store.tasks.take(f"w{number}", ["quote"], at) is not None
            at += SILENT + SECOND
        assert store.tasks.take("another", ["quote"], at) is None
        found = store.tasks.find(task.id)
        assert found is not None
        assert found.state is TaskState.FAILED
        assert str(MAX_TRIES) in found.message

    def test_readers_see_their_own_and_those_of_their_teams(self, store: StateStore) -> None:
        tasks = store.tasks
        own = tasks.put("other", "ana", "", {}, NOW)
        red = tasks.put("quote", "bob", "red", {}, NOW + SECOND)
        blue = tasks.put("quote", "bob", "blue", {}, NOW + 2 * SECOND)
        plan = tasks.put("plan", "bob", "", {}, NOW + 3 * SECOND)

        def seen(**which: object) -> list[str]:
            return [task.id for task in tasks.newest(9, "ana", own_kinds=None, **which)]  # type: ignore[arg-type]

        assert seen(teams={"quote": frozenset({"red"}), "plan": frozenset({"red"})}) == [red.id, own.id]
        assert seen(teams={"quote": None}) == [blue.id, red.id, own.id]
        everything = {"quote": None, "plan": None}
        assert seen(teams=everything) == [plan.id, blue.id, red.id, own.id]
        assert seen(teams=everything, before=(blue.asked_at, blue.id)) == [red.id, own.id]
        assert tasks.newest(9, "ana", own_kinds=["quote"], teams={}) == ()
        assert tasks.count_unfinished("bob") == 3

    def test_old_tasks_and_messages_go(self, store: StateStore) -> None:
        task = store.tasks.put("quote", "ana", "", {}, NOW)
        waiting = store.tasks.put("plan", "ana", "", {}, NOW)
        store.tasks.take("w", ["quote"], NOW)
        for number in range(EVENTS_KEPT + 5):
            store.tasks.progress(task.id, "w", str(number), NOW)
        store.tasks.finish(task.id, "w", {}, NOW)
        found = store.tasks.find(task.id)
        assert found is not None
        assert len(found.events) == EVENTS_KEPT
        assert found.events[-1].number == EVENTS_KEPT + 8
        assert store.tasks.prune(NOW + KEPT) == 0
        assert store.tasks.prune(NOW + KEPT + SECOND) == 1
        assert store.tasks.find(task.id) is None
        assert store.tasks.find(waiting.id) is not None


class IdempotencySuite(StateSuite):
    """Keys of requests."""

    def test_the_first_answer_is_given_again_for_a_day(self, store: StateStore) -> None:
        keys, answer = store.idempotency, StoredAnswer(202, '{"a":"ü"}', {"location": "/x"})
        assert keys.begin("ana", "k", "d1", NOW) == (KeyState.NEW, None)
        assert keys.begin("ana", "k", "d1", NOW) == (KeyState.UNDER_WAY, None)
        assert keys.begin("ana", "k", "d2", NOW) == (KeyState.OTHER_REQUEST, None)
        assert keys.begin("bob", "k", "d2", NOW) == (KeyState.NEW, None)
        keys.answer("ana", "k", answer)
        assert keys.begin("ana", "k", "d1", NOW + KEYS_KEPT) == (KeyState.ANSWERED, answer)
        assert keys.begin("ana", "k", "d2", NOW + KEYS_KEPT) == (KeyState.OTHER_REQUEST, None)
        keys.release("ana", "k")
        assert keys.begin("ana", "k", "d1", NOW + KEYS_KEPT) == (KeyState.ANSWERED, answer)
        assert keys.begin("ana", "k", "d2", NOW + KEYS_KEPT + SECOND) == (KeyState.NEW, None)

    def test_a_key_that_made_nothing_is_free_and_so_is_one_of_a_dead_server(self, store: StateStore) -> None:
        keys = store.idempotency
        assert keys.begin("ana", "k", "d1", NOW) == (KeyState.NEW, None)
        keys.release("ana", "k")
        assert keys.begin("ana", "k", "d2", NOW) == (KeyState.NEW, None)
        assert keys.begin("ana", "k", "d2", NOW + ABANDONED) == (KeyState.UNDER_WAY, None)
        assert keys.begin("ana", "k", "d2", NOW + ABANDONED + SECOND) == (KeyState.NEW, None)

    def test_of_requests_at_one_moment_one_is_new(self, url: str) -> None:
        with StateStore.open(url, now=NOW) as one, StateStore.open(url, now=NOW) as other:
            found: list[KeyState] = []
            together(4, lambda i: found.append((one, other)[i % 2].idempotency.begin("ana", "k", "d", NOW)[0]))
            assert sorted(found) == [KeyState.NEW, *[KeyState.UNDER_WAY] * 3]


class WebhooksSuite(StateSuite):
    """The outbox of webhooks."""

    def test_a_delivery_is_there_once_and_goes_through_its_states(self, store: StateStore) -> None:
        hooks = store.webhooks
        assert hooks.cursor() is None
        first = WebhookDelivery("a", "plan.made", "h1", '{"x":"ü"}', NOW, NOW)
        later = WebhookDelivery("b", "plan.made", "h1", "{}", NOW + SECOND, NOW)
        other = WebhookDelivery("c", "plan.made", "h2", "{}", NOW + 2 * SECOND, NOW)
        assert hooks.put([other, later, first], "c1") == 3
        assert hooks.put([first], "c2") == 0
        assert hooks.cursor() == "c2"
        assert hooks.new_ids(["a", "z"]) == {"z"}
        assert hooks.due(NOW) == (first, later, other)
        hooks.begin("a")
        hooks.failed("a", "it answered 500", NOW + 2 * SECOND)
        hooks.postpone("h1", NOW + SECOND)
        assert hooks.due(NOW) == (other,)
        assert [each.id for each in hooks.due(NOW + SECOND)] == ["b", "c"]
        hooks.delivered("b", NOW)
        hooks.give_up("c", "gone", NOW)
        (pending,) = hooks.due(NOW + 2 * SECOND)
        assert (pending.id, pending.tries, pending.message) == ("a", 1, "it answered 500")
        assert [each.state for each in hooks.all()] == [
            DeliveryState.DEAD,
            DeliveryState.DELIVERED,
            DeliveryState.PENDING,
        ]
        assert hooks.prune(NOW + DELIVERIES_KEPT + SECOND) == 2

    def test_heads_are_the_last_entries(self, store: StateStore) -> None:
        assert store.webhooks.heads() == StateHeads(0, 0, 0)
        store.audit.add("ana", "apply", "d", ZERO, NOW)
        store.journal.note("a1", "releasing", NOW, reason="lost")
        assert store.webhooks.heads() == StateHeads(1, 1, 0)
