package taskassignor;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment.AssignedTask;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskInfo;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;
import org.apache.kafka.streams.processor.internals.assignment.DefaultKafkaStreamsState;
import org.apache.kafka.streams.processor.internals.assignment.DefaultTaskInfo;
import org.apache.kafka.streams.processor.internals.assignment.DefaultTaskTopicPartition;
import org.apache.kafka.streams.state.HostInfo;

/** A state in the project's snapshot form, as Kafka's own objects. */
final class Snapshot implements ApplicationState {
    private final AssignmentConfigs configs;
    private final boolean isInOrder;
    private final Map<TaskId, TaskInfo> tasks;
    private final Map<ProcessId, KafkaStreamsState> withLags;
    private final Map<ProcessId, KafkaStreamsState> withoutLags;

    /** Maps as Kafka's leader has them, or maps that iterate in the order of the snapshot. */
    Snapshot(final JsonNode state, final boolean inOrder) {
        isInOrder = inOrder;
        tasks = inOrder ? new LinkedHashMap<>() : new HashMap<>();
        withLags = inOrder ? new LinkedHashMap<>() : new HashMap<>();
        withoutLags = inOrder ? new LinkedHashMap<>() : new HashMap<>();
        configs = configs(state.get("configs"));
        state.get("tasks").forEach(this::addTask);
        state.get("clients").forEach(this::addClient);
    }

    boolean isInOrder() {
        return isInOrder;
    }

    private static AssignmentConfigs configs(final JsonNode json) {
        final List<String> tags = new ArrayList<>();
        json.get("rackAwareAssignmentTags").forEach(tag -> tags.add(tag.asText()));
        return new AssignmentConfigs(
            json.get("acceptableRecoveryLag").asLong(),
            json.get("maxWarmupReplicas").asInt(),
            json.get("numStandbyReplicas").asInt(),
            json.get("probingRebalanceIntervalMs").asLong(),
            tags,
            cost(json.get("rackAwareTrafficCost")),
            cost(json.get("rackAwareNonOverlapCost")),
            json.get("rackAwareAssignmentStrategy").asText());
    }

    private static OptionalInt cost(final JsonNode json) {
        return json.isNull() ? OptionalInt.empty() : OptionalInt.of(json.asInt());
    }

    private void addTask(final JsonNode json) {
        final Set<TaskTopicPartition> partitions = new HashSet<>();
        for (final JsonNode one : json.get("topicPartitions")) {
            final DefaultTaskTopicPartition partition = new DefaultTaskTopicPartition(
                new TopicPartition(one.get("topic").asText(), one.get("partition").asInt()),
                one.get("isSource").asBoolean(), one.get("isChangelog").asBoolean(), () -> { });
            if (!one.get("rackIds").isNull()) {
                partition.annotateWithRackIds(strings(one.get("rackIds")));
            }
            partitions.add(partition);
        }
        final TaskId id = TaskId.parse(json.get("id").asText());
        tasks.put(id, new DefaultTaskInfo(id, json.get("isStateful").asBoolean(), strings(json.get("stateStoreNames")), partitions));
    }

    private void addClient(final JsonNode json) {
        final ProcessId id = processId(json);
        final SortedMap<String, Set<TaskId>> consumers = new TreeMap<>();
        json.get("consumers").fields().forEachRemaining(entry -> consumers.put(entry.getKey(), taskIds(entry.getValue())));
        final Map<String, String> tags = new HashMap<>();
        json.get("clientTags").fields().forEachRemaining(entry -> tags.put(entry.getKey(), entry.getValue().asText()));
        final Map<TaskId, Long> lags = new HashMap<>();
        json.get("taskLags").fields().forEachRemaining(entry -> lags.put(TaskId.parse(entry.getKey()), entry.getValue().asLong()));
        final JsonNode where = json.get("hostInfo");
        final Optional<HostInfo> host = where.isNull() ? Optional.empty() : Optional.of(new HostInfo(where.get("host").asText(), where.get("port").asInt()));
        final Optional<String> rack = json.get("rackId").isNull() ? Optional.empty() : Optional.of(json.get("rackId").asText());
        for (final boolean computed : new boolean[] {true, false}) {
            (computed ? withLags : withoutLags).put(id, new DefaultKafkaStreamsState(
                id, json.get("numProcessingThreads").asInt(), tags, taskIds(json.get("previousActiveTasks")),
                taskIds(json.get("previousStandbyTasks")), consumers, host,
                computed ? Optional.of(lags) : Optional.empty(), rack));
        }
    }

    /** The assignment of the question; every list order is kept. */
    static List<KafkaStreamsAssignment> assignments(final JsonNode placements) {
        final List<KafkaStreamsAssignment> found = new ArrayList<>();
        for (final JsonNode placement : placements) {
            final List<AssignedTask> assigned = new ArrayList<>();
            taskIds(placement.get("activeTasks")).forEach(id -> assigned.add(new AssignedTask(id, AssignedTask.Type.ACTIVE)));
            taskIds(placement.get("standbyTasks")).forEach(id -> assigned.add(new AssignedTask(id, AssignedTask.Type.STANDBY)));
            // By id: in a hash set those that share a bucket of Kafka's map would come in another order in every JVM.
            assigned.sort(Comparator.comparing(AssignedTask::id));
            found.add(KafkaStreamsAssignment.of(processId(placement), new LinkedHashSet<>(assigned)));
        }
        return found;
    }

    private static ProcessId processId(final JsonNode json) {
        return new ProcessId(UUID.fromString(json.get("processId").asText()));
    }

    static SortedSet<TaskId> taskIds(final JsonNode json) {
        final SortedSet<TaskId> ids = new TreeSet<>();
        json.forEach(id -> ids.add(TaskId.parse(id.asText())));
        return ids;
    }

    private static Set<String> strings(final JsonNode json) {
        final Set<String> found = new TreeSet<>();
        json.forEach(text -> found.add(text.asText()));
        return found;
    }

    @Override
    public Map<ProcessId, KafkaStreamsState> kafkaStreamsStates(final boolean computeTaskLags) {
        return computeTaskLags ? withLags : withoutLags;
    }

    @Override
    public AssignmentConfigs assignmentConfigs() {
        return configs;
    }

    @Override
    public Map<TaskId, TaskInfo> allTasks() {
        return tasks;
    }
}
