package taskassignor;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;

/**
 * A start that is given up before it has got through, as where the machine takes a minute to start a process: what becomes
 * of what it opens then. Arguments: key=value settings. It says whether a process is left, and why nobody talks to it.
 */
public final class GivenUpStart {
    private GivenUpStart() { }

    public static void main(final String[] arguments) throws Exception {
        final Map<String, Object> settings = new HashMap<>();
        for (final String argument : arguments) {
            settings.put(argument.substring(0, argument.indexOf('=')), argument.substring(argument.indexOf('=') + 1));
        }
        final Peer.Connection late = new Peer.Connection();
        late.close();
        try {
            late.open(new Settings(settings));
            System.out.println("open");
        } catch (final IOException refused) {
            System.out.println(refused.getMessage());
        }
        if (late.process != null) {
            late.process.waitFor();
            System.out.println("ended");
        }
        System.exit(0);
    }
}
