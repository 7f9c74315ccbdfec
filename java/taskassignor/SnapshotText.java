package taskassignor;

import java.util.Collection;
import java.util.Map;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;
import org.apache.kafka.streams.state.HostInfo;

/** A state and a decision as the JSON documents that every tool of task-assignor takes (docs/snapshots.md). */
final class SnapshotText {
    private final StringBuilder out = new StringBuilder(1 << 16);

    private SnapshotText() { }

    static String state(final State state, final String id) {
        final SnapshotText json = new SnapshotText();
        json.write(state, id);
        return json.out.append('\n').toString();
    }

    static String decision(final State state, final Decision decision, final String id) {
        final SnapshotText json = new SnapshotText();
        json.open('{').text("formatVersion", "1", false).text("id", id, true).name("assignment").open('[');
        for (int client = 0; client < state.clients.length; client++) {
            json.open('{').text("processId", state.processes[client].id().toString(), true);
            json.numbers("activeTasks", state, decision.active[client]).numbers("standbyTasks", state, decision.standby[client]);
            if (decision.deadlineMs[client] != State.MISSING) {
                json.text("followupRebalanceDeadlineMs", Long.toString(decision.deadlineMs[client]), false);
            }
            json.close('}');
        }
        return json.close(']').close('}').out.append('\n').toString();
    }

    private void write(final State state, final String id) {
        final AssignmentConfigs configs = state.configs;
        open('{').text("formatVersion", "1", false).text("id", id, true).text("nowMs", Long.toString(state.nowMs), false);
        name("configs").open('{').text("acceptableRecoveryLag", "" + configs.acceptableRecoveryLag(), false)
            .text("maxWarmupReplicas", "" + configs.maxWarmupReplicas(), false)
            .text("numStandbyReplicas", "" + configs.numStandbyReplicas(), false)
            .text("probingRebalanceIntervalMs", "" + configs.probingRebalanceIntervalMs(), false)
            .texts("rackAwareAssignmentTags", configs.rackAwareAssignmentTags());
        text("rackAwareTrafficCost", configs.rackAwareTrafficCost().isPresent() ? "" + configs.rackAwareTrafficCost().getAsInt() : "null", false);
        text("rackAwareNonOverlapCost", configs.rackAwareNonOverlapCost().isPresent() ? "" + configs.rackAwareNonOverlapCost().getAsInt() : "null", false);
        text("rackAwareAssignmentStrategy", configs.rackAwareAssignmentStrategy(), true).close('}');
        name("tasks").open('[');
        for (int task = 0; task < state.tasks.length; task++) {
            open('{').text("id", state.tasks[task].toString(), true).text("isStateful", "" + state.infos[task].isStateful(), false)
                .texts("stateStoreNames", new TreeSet<>(state.infos[task].stateStoreNames()));
            if (state.endOffsetSum[task] != State.MISSING && state.hasChangelog[task]) {
                text("endOffsetSum", "" + state.endOffsetSum[task], false);
            }
            name("topicPartitions").open('[');
            for (final TaskTopicPartition one : state.partitions[task]) {
                open('{').text("topic", one.topicPartition().topic(), true).text("partition", "" + one.topicPartition().partition(), false)
                    .text("isSource", "" + one.isSource(), false).text("isChangelog", "" + one.isChangelog(), false);
                if (one.rackIds().isPresent()) {
                    texts("rackIds", new TreeSet<>(one.rackIds().get()));
                }
                close('}');
            }
            close(']').close('}');
        }
        close(']').name("clients").open('[');
        for (int client = 0; client < state.clients.length; client++) {
            write(state, client);
        }
        close(']').close('}');
    }

    private void write(final State state, final int client) {
        final KafkaStreamsState one = state.clients[client];
        open('{').text("processId", state.processes[client].id().toString(), true)
            .text("numProcessingThreads", "" + one.numProcessingThreads(), false).name("consumers").open('{');
        for (final Map.Entry<String, SortedSet<TaskId>> consumer : state.consumers().get(client).entrySet()) {
            texts(consumer.getKey(), consumer.getValue());
        }
        close('}');
        final HostInfo host = one.hostInfo().orElse(null);
        if (host != null) {
            name("hostInfo").open('{').text("host", host.host(), true).text("port", "" + host.port(), false).close('}');
        }
        if (one.rackId().isPresent()) {
            text("rackId", one.rackId().get(), true);
        }
        name("clientTags").open('{');
        new TreeMap<>(one.clientTags()).forEach((tag, value) -> text(tag, value, true));
        close('}').texts("previousActiveTasks", new TreeSet<>(one.previousActiveTasks()))
            .texts("previousStandbyTasks", new TreeSet<>(one.previousStandbyTasks()));
        if (state.hasLags) {
            name("taskLags").open('{');
            for (int entry = 0; entry < state.lags[client].length; entry++) {
                text(state.tasks[state.lagTasks[client][entry]].toString(), "" + state.lags[client][entry], false);
            }
            close('}');
        }
        close('}');
    }

    private SnapshotText numbers(final String name, final State state, final int[] tasks) {
        name(name).open('[');
        for (final int task : tasks) {
            string(state.tasks[task].toString());
        }
        return close(']');
    }

    private SnapshotText texts(final String name, final Collection<?> texts) {
        name(name).open('[');
        texts.forEach(text -> string(text.toString()));
        return close(']');
    }

    private SnapshotText text(final String name, final String value, final boolean quoted) {
        name(name);
        if (quoted) {
            string(value);
        } else {
            comma();
            out.append(value);
        }
        return this;
    }

    private SnapshotText name(final String name) {
        string(name);
        out.append(':');
        return this;
    }

    private SnapshotText open(final char bracket) {
        comma();
        out.append(bracket);
        return this;
    }

    private SnapshotText close(final char bracket) {
        out.append(bracket);
        return this;
    }

    /** Between two values: after everything but an opening bracket and a colon. */
    private void comma() {
        final char last = out.length() == 0 ? '{' : out.charAt(out.length() - 1);
        if (last != '{' && last != '[' && last != ':') {
            out.append(',');
        }
    }

    private void string(final String text) {
        comma();
        out.append('"');
        for (int at = 0; at < text.length(); at++) {
            final char one = text.charAt(at);
            if (one == '"' || one == '\\') {
                out.append('\\').append(one);
            } else if (one < 0x20 || one > 0x7e) {
                out.append(String.format("\\u%04x", (int) one));
            } else {
                out.append(one);
            }
        }
        out.append('"');
    }
}
